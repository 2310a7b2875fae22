package wire

import (
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failedObject is the encoding of an object in the format Failed.
type failedObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     failedContent     `json:"spec"`
	Status   failedContent     `json:"status"`
}

// failedContent differs for each state, because whether the content has changed is unknown.
type failedContent struct {
	Error           string `json:"error"`
	ResourceVersion string `json:"resourceVersion"`
}

// NewFailed returns an object that cannot be decoded: a Decoder returns the text of problem. It has the identity of o,
// and the labels, owners and finalizers. Its annotations, spec and status differ in each state. It shares no memory
// with o.
func NewFailed(o *Object, problem error) *Object {
	failed := *o
	unknown := failedContent{Error: problem.Error(), ResourceVersion: o.ResourceVersion}
	content := failedObject{Spec: unknown, Status: unknown, Metadata: metav1.ObjectMeta{
		Name: o.Key.Name, Namespace: o.Key.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion,
		Generation: o.Generation,
		Labels:     o.Labels(), OwnerReferences: o.OwnerReferences(), Finalizers: o.Finalizers(),
		Annotations: map[string]string{"resourceVersion": o.ResourceVersion}, // differs too
	}}
	if o.Deleting {
		content.Metadata.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} // any time
	}
	failed.Format = Failed
	failed.Bytes, _ = json.Marshal(content) // strings and numbers are always encoded
	return &failed
}

// failure returns the error of an object in the format Failed.
func (o *Object) failure() error {
	var content failedObject
	if err := json.Unmarshal(o.Bytes, &content); err != nil {
		return err
	}
	return errors.New(content.Spec.Error)
}

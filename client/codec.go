package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

// encodeObject returns an object as JSON, with its kind, which typed objects lack.
func encodeObject(cluster *kube.Cluster, r *Request) ([]byte, error) {
	obj, kind := r.Object, r.Kind
	if r.Subresource != "" {
		// The body may have another kind than the object.
		var err error
		if kind, err = cluster.KindOf(obj); err != nil {
			return nil, err
		}
	}
	own := obj.GetObjectKind().GroupVersionKind()
	if (own.Kind == "" || own.Version == "") && !own.Empty() { // incomplete: the kind would be duplicated
		obj = obj.DeepCopyObject().(kube.Object)
		obj.GetObjectKind().SetGroupVersionKind(kind)
		own = kind
	}
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	if !own.Empty() {
		return encoded, nil
	}
	// The kind is inserted into the JSON, because copying the object to set two fields costs more than the
	// request.
	head, err := json.Marshal(metav1.TypeMeta{Kind: kind.Kind, APIVersion: kind.GroupVersion().String()})
	if err != nil {
		return nil, fmt.Errorf("encode the kind %s: %w", kind, err)
	}
	if string(encoded) == "{}" {
		return head, nil
	}
	return append(append(head[:len(head)-1], ','), encoded[1:]...), nil
}

// decodeInto decodes JSON into an object. As in the API server, field names are case-sensitive, and whole
// numbers of unstructured objects stay whole.
func decodeInto(raw []byte, into runtime.Object) error {
	clearObject(into)
	switch into := into.(type) {
	case *unstructured.Unstructured:
		return utiljson.Unmarshal(raw, &into.Object)
	default:
		return utiljson.Unmarshal(raw, into)
	}
}

// clearObject sets an object to zero, so that an earlier response does not mix with the next.
func clearObject(obj runtime.Object) { reflect.ValueOf(obj).Elem().SetZero() }

// isStatus reports whether a response is a Status, which has no object.
func isStatus(raw []byte) bool {
	if !bytes.Contains(raw, []byte(`"Status"`)) {
		return false // most responses: no need to decode them
	}
	var meta metav1.TypeMeta
	return json.Unmarshal(raw, &meta) == nil && meta.Kind == "Status" && meta.APIVersion == "v1"
}

// page is a page of a list with undecoded items.
type page struct {
	metav1.TypeMeta
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (p *page) DeepCopyObject() runtime.Object {
	out := *p
	out.Items = make([]json.RawMessage, len(p.Items))
	for i, item := range p.Items {
		out.Items[i] = append(json.RawMessage(nil), item...)
	}
	return &out
}

// decode decodes an object of kind into a new T. like is of the type to create if T is an interface, otherwise
// it may be nil.
func decode[T kube.Object](raw []byte, kind schema.GroupVersionKind, like T) (T, error) {
	obj := newLike(like)
	if err := decodeInto(raw, obj); err != nil {
		var none T
		return none, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind) // of the object, not "PartialObjectMetadata"
	return obj, nil
}

// decodeOneOf is decode with an error that names the object.
func decodeOneOf[T kube.Object](raw []byte, kind schema.GroupVersionKind, like T) (T, error) {
	obj, err := decode(raw, kind, like)
	if err != nil {
		var metadata metav1.PartialObjectMetadata
		_ = utiljson.Unmarshal(raw, &metadata) // the name, if it can be decoded
		return obj, fmt.Errorf("decode %s: %w", target{kind: kind, key: kube.KeyOf(&metadata)}, err)
	}
	return obj, nil
}

// newLike returns a new object of the type of like, or of T when like is nil.
func newLike[T kube.Object](like T) T {
	if value := reflect.ValueOf(like); value.IsValid() {
		return reflect.New(value.Type().Elem()).Interface().(T)
	}
	return apiobject.New[T]()
}

// isMetadata reports whether the type of like is metadata only.
func isMetadata[T kube.Object](like T) bool {
	_, metadata := any(like).(*metav1.PartialObjectMetadata)
	return metadata
}

// convert returns an object of an informer as a T of the same kind. It may change obj.
func convert[T kube.Object](obj kube.Object, kind schema.GroupVersionKind, like T) (T, error) {
	if typed, ok := obj.(T); ok && reflect.TypeOf(obj) == reflect.TypeOf(like) {
		typed.GetObjectKind().SetGroupVersionKind(kind) // as in a response of the API server
		return typed, nil
	}
	if isMetadata(like) {
		converted := &metav1.PartialObjectMetadata{ObjectMeta: metadataOf(obj)}
		converted.SetGroupVersionKind(kind)
		return any(converted).(T), nil
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		var none T
		return none, err
	}
	return decode(raw, kind, like)
}

// metadataOf returns the metadata of an object.
func metadataOf(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(), Labels: obj.GetLabels(),
		Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(), Finalizers: obj.GetFinalizers(),
		ManagedFields: obj.GetManagedFields(),
	}
}

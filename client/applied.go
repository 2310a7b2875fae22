package client

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// declaredIn returns a configuration without the uid and the resourceVersion, which identify the object and
// its state. So a configuration without a uid equals the same configuration with the uid of the object that
// it created.
func declaredIn(configuration map[string]any) map[string]any {
	return difference.Without(configuration, nil, "uid", "resourceVersion")
}

// stateOf returns the state to store for obj, the response to an apply.
func (a application) stateOf(obj kube.Object) (appliedState, error) {
	shown, err := a.shownIn(obj)
	return appliedState{
		uid: obj.GetUID(), version: obj.GetResourceVersion(), input: a.input, configured: a.configured, shown: shown,
		entry: a.entryIn(obj), term: a.term,
	}, err
}

// last returns the stored state of the last apply to the object in this term; the zero value if it is unknown.
func (a application) last() appliedState {
	last, _ := a.client.applied.get(a.id)
	if last.term != a.term {
		return appliedState{}
	}
	return last
}

// shownIn returns the digest of obj's values in the fields of the configuration.
func (a application) shownIn(obj kube.Object) (digest, error) {
	if err := a.desired.compute(); err != nil {
		return digest{}, err
	}
	content, err := a.contents.of(obj)
	if err != nil {
		return digest{}, err
	}
	projected, _ := difference.Project(a.desired.declared, content).(map[string]any)
	delete(projected, "apiVersion")
	delete(projected, "kind")
	return digestOf(projected), nil
}

// entryOf returns the field owner's entry in managedFields: stored, which an informer keeps with the object,
// or the one in obj; nil if both are missing.
func (a application) entryOf(obj metav1.Object, stored *metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	if stored != nil && a.isOwn(stored) {
		return stored
	}
	entries := obj.GetManagedFields()
	for i := range entries {
		if a.isOwn(&entries[i]) {
			return &entries[i]
		}
	}
	return nil
}

// isOwn reports whether an entry of managedFields belongs to an apply by the field owner.
func (a application) isOwn(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == a.request.FieldOwner && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.Subresource == a.request.Subresource
}

// entryIn returns the digest of the field owner's entry in managedFields, including the time of its last
// change, or the zero digest if obj has no managedFields, as objects of informers.
func (a application) entryIn(obj metav1.Object) digest {
	if len(obj.GetManagedFields()) == 0 {
		return digest{}
	}
	return a.digestOfEntry(a.entryOf(obj, nil))
}

// digestOfEntry is entryIn for an entry; nil if the field owner has no entry.
func (a application) digestOfEntry(own *metav1.ManagedFieldsEntry) digest {
	if own == nil {
		return digestOf([]string{})
	}
	entry := *own
	var fields any
	if entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return digest{}
	}
	entry.FieldsV1 = nil
	return digestOf([]any{entry, fields}) // in the order of encoding/json, for any encoder
}

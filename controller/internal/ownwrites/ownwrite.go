package ownwrites

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Event is the creation or the change of an object, as an informer reported it. Other events are never echoes: the zero
// Event stands for them.
//
//   - Deletions: other clients decide when they complete (finalizers).
//   - Changes found by a list: the list may hide a change by another client before the write.
type Event struct {
	Kind            schema.GroupKind
	Object          kube.Key
	UID             types.UID
	ResourceVersion string
	Added           bool   // the informer did not show the object before
	Previous        string // resource version that the informer showed before, unless Added
}

// ownWrite is a write of a run, as informers will show it.
//
// An event of the write is an echo if only the write lies between the state before the event, which an informer has
// reported, and the state after it. The resource version of the response does not prove this. A write that changes
// nothing returns the state that another client made, whose event may not have arrived yet. A write without a
// precondition may follow a change made by another client that no event will show, because the watch broke and a list
// replaced it. These events are echoes:
//
//   - an object that the run created is added, in the state in which it was created;
//   - an object changes from the version that an update or patch named as its precondition to the version in its
//     response;
//   - an object changes from the version that the run knew (from the informer, or from its own last write) to the
//     version in the response to a patch, if every difference between the two is in the request, or if the JSON patch
//     turns the one into the other. (An update without a precondition explains any difference, including a change made
//     by another client that the handler read without the cache.)
type ownWrite struct {
	cache.Write
	kind    schema.GroupKind
	whole   schema.GroupVersionKind // kind of Object; empty if Object is not the whole object
	created bool
	base    string // version from which the write started; empty: not known for certain; see baseVersion
}

// newOwnWrite returns a completed write without its base. ok is false if it is not known how informers will show it.
func newOwnWrite(call kube.Call, before *State, r cache.Response) (w ownWrite, ok bool) {
	var known *wire.Object
	if before != nil {
		known = before.Object
	}
	w.Write, ok = r.Write(call, known)
	if w.Deleted {
		w.Object = nil
	}
	w.kind, w.created = call.Kind.GroupKind(), call.Status == http.StatusCreated && call.Subresource == ""
	if r.Kind == call.Kind {
		w.whole = r.Kind
	}
	return w, ok
}

// isEcho reports whether e contains exactly w.
func (w *ownWrite) isEcho(e Event) bool {
	if w.Deleted || w.ResourceVersion == "" || w.ResourceVersion != e.ResourceVersion ||
		w.Key != e.Object || w.UID != e.UID || w.kind != e.Kind {
		return false
	}
	if e.Added {
		return w.created
	}
	return w.base != "" && w.base == e.Previous
}

// String returns a description of the write for people.
func (w *ownWrite) String() string {
	if w.Deleted {
		return "the deletion of " + w.kind.Kind + " " + w.Key.String()
	}
	return w.kind.Kind + " " + w.Key.String() + " at resource version " + w.ResourceVersion
}

package controller

import (
	"encoding/json"
	"maps"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// ownWrite is a write of a run, as informers will see it.
//
// Its event is an echo, which need not run the key again, when nothing is in it but the write:
// when the state before it is one that the informer has announced, and the step from there is
// the write's alone. That the resource version is the one in the answer does not say so. A write
// that changes nothing is answered with the state that somebody else has made, whose event may
// still be on its way; and a write without a precondition may have followed another hand's that
// no event will show, because the watch broke and a list came in its place. So an echo is
//
//   - the coming of an object that the run has created, in the state that it was created in;
//   - the step from the version that an update or patch named as its precondition to the
//     version that it was answered with;
//   - the step from the version that the run knew (from the informer, or by its own last write)
//     to the one that a patch was answered with, if every difference between the two is in the
//     request, or what a JSON patch makes of the one is the other. (An update without a
//     precondition explains any difference, also that from a state of another hand's, which the
//     handler has read past the cache.)
//
// Deletions are no echoes: they are wishes, whose fulfilment others decide on.
type ownWrite struct {
	informer.Write
	kind    schema.GroupKind
	whole   schema.GroupVersionKind // of Object; empty when that is not the whole object
	created bool
	base    string // the version that the write led away from; empty: not known for certain
}

// isBehind reports whether cause is the coming of exactly what w has written.
func (w *ownWrite) isBehind(cause *workqueue.Cause) bool {
	if w.ResourceVersion == "" || w.ResourceVersion != cause.ResourceVersion ||
		w.Key != cause.Object || w.UID != cause.UID || w.kind != cause.Kind {
		return false
	}
	return cause.Type == workqueue.CauseAdded && w.created ||
		cause.Type == workqueue.CauseUpdated && w.base != "" && w.base == cause.Previous
}

// baseOf returns the version that an update or patch led away from to after, if nothing but the
// write lies between.
func (l *loop[T]) baseOf(call kube.Call, was *before, a answer) string {
	after := a.object
	if after == nil || call.Verb != "update" && call.Verb != "patch" {
		return ""
	}
	// Read without the kind's type, which is known only where an informer keeps whole objects.
	if sent, err := wire.Parse(call.Request, nil); err == nil && sent.ResourceVersion != "" {
		if sent.ResourceVersion == after.ResourceVersion {
			return "" // it has changed nothing: the state is another hand's, read since was
		}
		return sent.ResourceVersion
	}
	if call.Verb == "update" {
		return "" // a whole object: it may have been read past the cache, with another hand's change
	}
	if a.kind != call.Kind {
		return "" // only part of the object: what else has changed does not show
	}
	if was == nil || !was.whole || was.object.UID != after.UID || was.object.ResourceVersion == after.ResourceVersion {
		return ""
	}
	kind := call.Kind.GroupKind()
	from, errFrom := l.content(kind, was.object)
	to, errTo := l.content(kind, after)
	if errFrom != nil || errTo != nil || !liesBetween(call, from, to) {
		return ""
	}
	return was.object.ResourceVersion
}

// liesBetween reports whether a patch is all that lies between two states.
func liesBetween(call kube.Call, from, to map[string]any) bool {
	if call.RequestType == string(types.JSONPatchType) {
		// What it does to a state can be told exactly, also what it removes; nothing is left for the
		// request to explain.
		made, ok := patched(from, call.Request)
		return ok && explains(nil, call, made, to)
	}
	var request map[string]any
	return utiljson.Unmarshal(call.Request, &request) == nil && explains(request, call, from, to)
}

// patched returns what a JSON patch makes of a state, and whether it can be applied to it.
func patched(state map[string]any, patch []byte) (map[string]any, bool) {
	operations, errPatch := jsonpatch.DecodePatch(patch)
	encoded, errState := json.Marshal(state)
	if errPatch != nil || errState != nil {
		return nil, false
	}
	made, err := operations.Apply(encoded)
	var content map[string]any
	if err != nil || utiljson.Unmarshal(made, &content) != nil {
		return nil, false
	}
	// The API server keeps no empty lists and maps there: without its last finalizer an object has
	// no finalizers.
	if metadata, ok := content["metadata"].(map[string]any); ok {
		maps.DeleteFunc(metadata, func(_ string, value any) bool {
			list, isList := value.([]any)
			fields, isMap := value.(map[string]any)
			return isList && len(list) == 0 || isMap && len(fields) == 0
		})
	}
	return content, true
}

package controller

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
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
// Deletions are no echoes: they are wishes, whose fulfilment others decide on. Nor is what a list shows:
// see offer.
type ownWrite struct {
	cache.Write
	kind    schema.GroupKind
	whole   schema.GroupVersionKind // of Object; empty when that is not the whole object
	created bool
	base    string // the version that the write led away from; empty: not known for certain
}

// isBehind reports whether cause is the coming of exactly what w has written.
func (w *ownWrite) isBehind(cause *Cause) bool {
	if w.Deleted || w.ResourceVersion == "" || w.ResourceVersion != cause.ResourceVersion ||
		w.Key != cause.Object || w.UID != cause.UID || w.kind != cause.Kind {
		return false
	}
	return cause.Type == CauseAdded && w.created ||
		cause.Type == CauseUpdated && w.base != "" && w.base == cause.Previous
}

// baseOf returns the version that an update or patch led away from to after, if nothing but the
// write lies between.
func baseOf(call kube.Call, was *before, a answer, content contentFunc) string {
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
	if version := lockOf(call); version != "" {
		if version == after.ResourceVersion {
			return "" // as above
		}
		return version
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
	if isStatusPatched(call, was.object, after) {
		return was.object.ResourceVersion
	}
	to, err := content(after)
	if err != nil {
		return ""
	}
	if call.RequestType == string(types.JSONPatchType) && was.object.Format == wire.JSON {
		// The patch is applied to the bytes, without decoding and encoding the state for it.
		if !isPatched(call, was.object.Bytes, to) {
			return ""
		}
		return was.object.ResourceVersion
	}
	from, err := content(was.object)
	if err != nil || !liesBetween(call, from, to) {
		return ""
	}
	return was.object.ResourceVersion
}

// lockOf returns the resourceVersion that the JSON patch of a call demands; "" if it demands none.
func lockOf(call kube.Call) (version string) {
	const path = "/metadata/resourceVersion"
	if call.RequestType != string(types.JSONPatchType) || !bytes.Contains(call.Request, []byte(path)) {
		return ""
	}
	var operations []struct {
		Op, Path, From string
		Value          any
	}
	if json.Unmarshal(call.Request, &operations) != nil {
		return ""
	}
	for _, o := range operations {
		value, isText := o.Value.(string)
		switch {
		case o.Path == path && isText && version == "" && (o.Op == "test" || o.Op == "add" || o.Op == "replace"):
			version = value
		case strings.HasPrefix(path, o.Path) || strings.HasPrefix(path, o.From) && o.From != "":
			return "" // it does something else to the resourceVersion too
		}
	}
	return version
}

// isStatusPatched is isPatched for a patch of the status. It decodes the statuses only, when nothing
// else differs; false says nothing.
func isStatusPatched(call kube.Call, from, to *wire.Object) bool {
	const rest = kube.ChangedAnything &^ (kube.ChangedResourceVersion | kube.ChangedStatus)
	if call.RequestType != string(types.JSONPatchType) || call.Subresource != "status" || from.Format != wire.JSON || to.Format != wire.JSON ||
		to.Deleting || (wire.Comparer{}).Compare(from, to, rest) != 0 {
		return false
	}
	operations, err := jsonpatch.DecodePatch(call.Request)
	if err != nil {
		return false
	}
	operations = slices.DeleteFunc(operations, func(o jsonpatch.Operation) bool {
		path, err := o.Path()
		return err == nil && o.Kind() == "test" && !strings.HasPrefix(path, "/status") // the API server has looked
	})
	var before, after struct {
		Status json.RawMessage `json:"status,omitempty"`
	}
	if json.Unmarshal(from.Bytes, &before) != nil || json.Unmarshal(to.Bytes, &after) != nil {
		return false
	}
	encodedBefore, errBefore := json.Marshal(before)
	encodedAfter, errAfter := json.Marshal(after)
	if errBefore != nil || errAfter != nil {
		return false
	}
	made, err := operations.Apply(encodedBefore)
	return err == nil && jsonpatch.Equal(made, encodedAfter)
}

// liesBetween reports whether a patch is all that lies between two states.
func liesBetween(call kube.Call, from, to map[string]any) bool {
	if call.RequestType == string(types.JSONPatchType) {
		encoded, err := json.Marshal(from)
		return err == nil && isPatched(call, encoded, to)
	}
	var request map[string]any
	return utiljson.Unmarshal(call.Request, &request) == nil && explains(request, call, from, to)
}

// isPatched reports whether the JSON patch of a call is all that lies between a state, encoded as
// JSON, and another one. What the patch does to a state can be computed exactly, also what it
// removes: nothing is left for the request to explain.
func isPatched(call kube.Call, from []byte, to map[string]any) bool {
	made, ok := patched(from, call.Request)
	return ok && explains(nil, call, made, to)
}

// patched returns what a JSON patch makes of a state, and whether it can be applied to it.
func patched(state, patch []byte) (map[string]any, bool) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, false
	}
	made, err := operations.Apply(state)
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

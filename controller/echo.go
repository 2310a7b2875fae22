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

// ownWrite is a write of a run, as informers will show it.
//
// The event of a write is an echo if it contains nothing but the write. An echo need not run the key again. The state
// before an echo must be one that the informer has reported, and only the write may lie between the two states. The
// resource version of the response does not prove this. A write that changes nothing returns the state that another
// client made, whose event may not have arrived yet. A write without a precondition may follow a change made by another
// client that no event will show, because the watch broke and a list replaced it. These events are echoes:
//
//   - an object that the run created is added, in the state in which it was created;
//   - an object changes from the version that an update or patch named as its precondition to the version in its
//     response;
//   - an object changes from the version that the run knew (from the informer, or from its own last write) to the
//     version in the response to a patch, if every difference between the two is in the request, or if the JSON patch
//     turns the one into the other. (An update without a precondition explains any difference, including a change made
//     by another client that the handler read without the cache.)
//
// Deletes are never echoes: other clients decide when they complete (finalizers). Changes found by a list are not
// echoes either: see offer.
type ownWrite struct {
	cache.Write
	kind    schema.GroupKind
	whole   schema.GroupVersionKind // kind of Object; empty if Object is not the whole object
	created bool
	base    string // version from which the write started; empty: not known for certain
}

// isBehind reports whether cause is the event of exactly what w wrote.
func (w *ownWrite) isBehind(cause *Cause) bool {
	if w.Deleted || w.ResourceVersion == "" || w.ResourceVersion != cause.ResourceVersion ||
		w.Key != cause.Object || w.UID != cause.UID || w.kind != cause.Kind {
		return false
	}
	return cause.Type == CauseAdded && w.created ||
		cause.Type == CauseUpdated && w.base != "" && w.base == cause.Previous
}

// baseOf returns the version from which an update or patch started, if only the write lies between that version and the
// response; otherwise "".
func baseOf(call kube.Call, was *before, a answer, content contentFunc) string {
	after := a.object
	if after == nil || call.Verb != "update" && call.Verb != "patch" {
		return ""
	}
	// The request is parsed without the kind's type, which is known only if an informer keeps whole objects.
	if sent, err := wire.Parse(call.Request, nil); err == nil && sent.ResourceVersion != "" {
		if sent.ResourceVersion == after.ResourceVersion {
			return "" // no change: the state is another client's, and the run read it after was
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
		return "" // a whole object: the run may have read it, with another client's change, without the cache
	}
	if a.kind != call.Kind {
		return "" // only part of the object: its other changes are not visible
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
		// The patch is applied to the encoded state, which avoids decoding and encoding the state.
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

// lockOf returns the resourceVersion that the JSON patch of a call requires, or "" if it requires none.
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
			return "" // it reads or changes the resourceVersion in another way too
		}
	}
	return version
}

// isStatusPatched is isPatched for a patch of the status. It decodes only the statuses, and only if nothing else
// differs. A false result proves nothing.
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
		return err == nil && o.Kind() == "test" && !strings.HasPrefix(path, "/status") // the API server has tested it
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

// liesBetween reports whether a patch is the only difference between two states.
func liesBetween(call kube.Call, from, to map[string]any) bool {
	if call.RequestType == string(types.JSONPatchType) {
		encoded, err := json.Marshal(from)
		return err == nil && isPatched(call, encoded, to)
	}
	var request map[string]any
	return utiljson.Unmarshal(call.Request, &request) == nil && explains(request, call, from, to)
}

// isPatched reports whether the JSON patch of a call is the only difference between from, encoded as JSON, and to. The
// result of a JSON patch can be computed exactly, including what it removes: the request need not explain any
// difference.
func isPatched(call kube.Call, from []byte, to map[string]any) bool {
	made, ok := patched(from, call.Request)
	return ok && explains(nil, call, made, to)
}

// patched returns the result of a JSON patch of a state, and whether the patch can be applied.
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
	// The API server removes empty lists and maps from the metadata: an object whose last finalizer was removed has no
	// finalizers field.
	if metadata, ok := content["metadata"].(map[string]any); ok {
		maps.DeleteFunc(metadata, func(_ string, value any) bool {
			list, isList := value.([]any)
			fields, isMap := value.(map[string]any)
			return isList && len(list) == 0 || isMap && len(fields) == 0
		})
	}
	return content, true
}

package ownwrites

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// isJSONPatchResult reports whether the JSON patch of a call is the only difference between from, encoded as JSON, and
// to. The result of a JSON patch can be computed exactly, including what it removes: the request need not explain any
// difference.
func isJSONPatchResult(call kube.Call, from []byte, to map[string]any) bool {
	patched, ok := applyJSONPatch(from, call.Request)
	return ok && explains(nil, call, patched, to)
}

// applyJSONPatch returns the result of a JSON patch of a state, and whether the patch can be applied.
func applyJSONPatch(state, patch []byte) (map[string]any, bool) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, false
	}
	patched, err := operations.Apply(state)
	var content map[string]any
	if err != nil || utiljson.Unmarshal(patched, &content) != nil {
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

// isStatusPatchResult is isJSONPatchResult for a patch of the status. It decodes only the statuses, and only if nothing
// else differs. A false result proves nothing.
func isStatusPatchResult(call kube.Call, from, to *wire.Object) bool {
	const rest = kube.ChangedAnything &^ (kube.ChangedResourceVersion | kube.ChangedStatus)
	if !isJSONPatch(call) || call.Subresource != "status" || from.Format != wire.JSON || to.Format != wire.JSON ||
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
	patched, err := operations.Apply(encodedBefore)
	return err == nil && jsonpatch.Equal(patched, encodedAfter)
}

package ownwrites

import (
	"bytes"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// baseVersion returns the version from which an update or patch started, if only the write lies between that version
// and the response; otherwise "".
func baseVersion(
	call kube.Call, before *State, r cache.Response, content func(*wire.Object) (map[string]any, error),
) string {
	after := r.Object
	if after == nil || call.Verb != "update" && call.Verb != "patch" {
		return ""
	}
	if required := requiredVersion(call); required != "" {
		if required == after.ResourceVersion {
			return "" // no change: the state is another client's, and the run read it later than before
		}
		return required
	}
	if call.Verb == "update" {
		return "" // a whole object: the run may have read it, with another client's change, without the cache
	}
	if r.Kind != call.Kind {
		return "" // only part of the object: its other changes are not visible
	}
	if before == nil || !before.Whole || before.Object.UID != after.UID || before.is(after) {
		return ""
	}
	if !isOnlyDifference(call, before.Object, after, content) {
		return ""
	}
	return before.Object.ResourceVersion
}

// requiredVersion returns the resource version that an update or patch names as its precondition, or "".
func requiredVersion(call kube.Call) string {
	// The request is parsed without the kind's type, which is known only if an informer keeps whole objects.
	if sent, err := wire.Parse(call.Request, nil); err == nil && sent.ResourceVersion != "" {
		return sent.ResourceVersion
	}
	return versionInJSONPatch(call)
}

// versionInJSONPatch returns the resourceVersion that the JSON patch of a call requires, or "" if it requires none.
func versionInJSONPatch(call kube.Call) (version string) {
	const path = "/metadata/resourceVersion"
	if !isJSONPatch(call) || !bytes.Contains(call.Request, []byte(path)) {
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

// isOnlyDifference reports whether a patch is the only difference between two states.
func isOnlyDifference(
	call kube.Call, before, after *wire.Object, content func(*wire.Object) (map[string]any, error),
) bool {
	if isStatusPatchResult(call, before, after) {
		return true
	}
	to, err := content(after)
	if err != nil {
		return false
	}
	if isJSONPatch(call) && before.Format == wire.JSON {
		return isJSONPatchResult(call, before.Bytes, to) // without decoding and encoding the state
	}
	from, err := content(before)
	return err == nil && isPatchResult(call, from, to)
}

// isPatchResult is isOnlyDifference for decoded states.
func isPatchResult(call kube.Call, from, to map[string]any) bool {
	if isJSONPatch(call) {
		encoded, err := json.Marshal(from)
		return err == nil && isJSONPatchResult(call, encoded, to)
	}
	var request map[string]any
	return utiljson.Unmarshal(call.Request, &request) == nil && explains(request, call, from, to)
}

func isJSONPatch(call kube.Call) bool { return call.RequestType == string(types.JSONPatchType) }

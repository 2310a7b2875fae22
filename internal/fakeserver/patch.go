package fakeserver

import (
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func (s *Server) patch(r request, old *unstructured.Unstructured) *http.Response {
	patched := mergePatched
	if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
		patched = jsonPatched
	}
	body, refused := patched(r.body, old)
	if refused != nil {
		return failure(refused)
	}
	return s.put(r, old, body)
}

// jsonPatched returns old with a JSON patch (RFC 6902) applied.
func jsonPatched(operations []byte, old *unstructured.Unstructured) ([]byte, *apierrors.StatusError) {
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	encoded, err := json.Marshal(old.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	body, err := patch.Apply(encoded)
	if err != nil {
		// A test operation failed, or a path does not exist. The error has no causes.
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return body, nil
}

// mergePatched returns old with a merge patch (RFC 7396) applied.
func mergePatched(patch []byte, old *unstructured.Unstructured) ([]byte, *apierrors.StatusError) {
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	next := old.DeepCopy()
	merge(next.Object, change)
	body, err := json.Marshal(next.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return body, nil
}

func merge(into, change map[string]any) {
	for name, value := range change {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case isMap:
			below, ok := into[name].(map[string]any)
			if !ok {
				below = map[string]any{}
			}
			merge(below, inner)
			into[name] = below
		default:
			into[name] = value
		}
	}
}

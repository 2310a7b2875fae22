package client

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// PatchBody is what a Patch changes. MergeFrom and JSONPatch make one, package strategic a
// strategic merge patch, RawPatch any other.
type PatchBody struct {
	patchType types.PatchType
	body      []byte
	err       error // of making it; Patch returns it
}

// RawPatch is a patch that the caller has encoded.
func RawPatch(patchType types.PatchType, body []byte) PatchBody {
	return PatchBody{patchType: patchType, body: body}
}

// MergeFrom is the JSON merge patch (RFC 7386) that makes after of before: what differs, and
// nothing else. Lists that differ are replaced as a whole: whoever else writes to the list
// needs Locked. When nothing differs, Patch makes no request.
func MergeFrom(before, after kube.Object) PatchBody {
	body, err := mergePatch(before, after)
	return PatchBody{patchType: types.MergePatchType, body: body, err: err}
}

func mergePatch(before, after any) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode the object before: %w", err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode the object after: %w", err)
	}
	body, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, fmt.Errorf("compare the objects: %w", err)
	}
	return body, nil
}

// Operation is a step of a JSON patch (RFC 6902).
type Operation struct {
	// Op is add, remove, replace, move, copy or test.
	Op string `json:"op"`
	// Path is a JSON pointer (RFC 6901), From another one, for move and copy.
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	// Value is encoded as JSON; null for operations that have none.
	Value any `json:"value"`
}

// JSONPatch is a JSON patch of these operations. A test among them that fails refuses the
// whole patch, with an error of class Invalid.
func JSONPatch(operations ...Operation) PatchBody {
	body, err := json.Marshal(operations)
	return PatchBody{patchType: types.JSONPatchType, body: body, err: err}
}

// Locked returns the patch with a condition: that the object still has the resourceVersion of
// obj, and its uid. Otherwise Patch returns ErrChanged.
func (p PatchBody) Locked(obj metav1.Object) PatchBody {
	if p.err != nil || p.Empty() {
		return p
	}
	if obj.GetResourceVersion() == "" {
		p.err = fmt.Errorf("the object has no resourceVersion to insist on: use one that was read from the cluster")
		return p
	}
	lock := map[string]any{"resourceVersion": obj.GetResourceVersion()}
	if obj.GetUID() != "" {
		lock["uid"] = obj.GetUID()
	}
	if p.patchType == types.JSONPatchType {
		var operations []Operation
		if p.err = json.Unmarshal(p.body, &operations); p.err == nil {
			locked := []Operation{{Op: "test", Path: "/metadata/resourceVersion", Value: obj.GetResourceVersion()}}
			p.body, p.err = json.Marshal(append(locked, operations...))
		}
		return p
	}
	condition, err := json.Marshal(map[string]any{"metadata": lock})
	if err == nil {
		p.body, err = jsonpatch.MergeMergePatches(p.body, condition)
	}
	p.err = err
	return p
}

// Empty reports whether the patch changes nothing.
func (p PatchBody) Empty() bool {
	text := string(p.body)
	return p.err == nil && (text == "{}" || text == "[]" || text == "null" || text == "")
}

// String returns the patch's body.
func (p PatchBody) String() string { return string(p.body) }

// Patch changes the object that obj names, and returns it as the API server has it; obj itself
// is not changed. An empty patch makes no request: obj is returned.
//
// Options: DryRun, FieldOwner, FieldValidation, Subresource.
//
// Errors: ErrGone; ErrChanged, of a patch that is Locked.
func Patch[T kube.Object](ctx context.Context, c *Client, obj T, patch PatchBody, options ...Option) (T, error) {
	var none T
	s, err := newSettings(options, "DryRun", "FieldOwner", "FieldValidation", "Subresource")
	if err != nil {
		return none, fmt.Errorf("patch: %w", err)
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return none, fmt.Errorf("patch: %w", err)
	}
	if patch.err != nil {
		return none, fmt.Errorf("patch %s: %w", t.withSubresource(s), patch.err)
	}
	if patch.Empty() {
		return obj, nil
	}
	r := t.request(VerbPatch, s)
	r.PatchType, r.Body = patch.patchType, patch.body
	patched, err := exchange(ctx, t, r, obj)
	if err != nil {
		return none, fmt.Errorf("patch %s: %w", t.withSubresource(s), asChanged(err))
	}
	return patched, nil
}

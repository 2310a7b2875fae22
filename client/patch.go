package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// PatchBody is the content of a Patch: MergeFrom and JSONPatch return one, package strategic a strategic merge
// patch, RawPatch any other.
type PatchBody struct {
	patchType types.PatchType
	body      []byte
	err       error // of making it; Patch returns it
}

// RawPatch returns a patch that the caller has encoded, of type types.MergePatchType, types.JSONPatchType or
// types.StrategicMergePatchType. (For server-side apply use Apply.)
func RawPatch(patchType types.PatchType, body []byte) PatchBody {
	return PatchBody{patchType: patchType, body: body}
}

// FailedPatch returns a patch for which Patch returns err, for functions that return a PatchBody, such as
// MergeFrom.
func FailedPatch(err error) PatchBody { return PatchBody{err: err} }

// MergeFrom returns the JSON merge patch (RFC 7386) of the differences between before and after. A list that
// differs is replaced as a whole: if other clients write to it, use Locked. If nothing differs, Patch makes no
// request.
//
// Usually before was read, and after is a changed copy of it. Both must be the same object, with the same type.
func MergeFrom(before, after kube.Object) PatchBody {
	from, to, err := difference.States(before, after)
	if err != nil {
		return FailedPatch(err)
	}
	return mergeBody(difference.MergePatch(from, to))
}

// mergeBody returns a JSON merge patch.
func mergeBody(content map[string]any) PatchBody {
	body, err := json.Marshal(content)
	return PatchBody{patchType: types.MergePatchType, body: body, err: err}
}

// Operation is a step of a JSON patch (RFC 6902).
type Operation struct {
	// Op is add, remove, replace, move, copy or test.
	Op string `json:"op"`
	// Path is a JSON pointer (RFC 6901), From another one, for move and copy.
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	// Value is encoded as JSON; null for operations without a value.
	Value any `json:"value"`
}

// JSONPatch returns a JSON patch of these operations. If a test among them fails, the whole patch is rejected, and
// apierrors.IsInvalid is true for the error.
func JSONPatch(operations ...Operation) PatchBody {
	body, err := json.Marshal(operations)
	return PatchBody{patchType: types.JSONPatchType, body: body, err: err}
}

// Locked returns the patch with the precondition that the object still has the resourceVersion of obj, and so
// is the same one. Otherwise Patch returns ErrChanged.
func (p PatchBody) Locked(obj metav1.Object) PatchBody {
	if p.err != nil || p.Empty() {
		return p
	}
	var version string
	switch version, p.err = versionOf(obj); {
	case p.err != nil:
	case p.patchType == types.JSONPatchType:
		p.body, p.err = lockedOperations(p.body, version)
	default:
		p.body, p.err = lockedMerge(p.body, version)
	}
	return p
}

// versionOf returns the resourceVersion for a precondition.
func versionOf(obj metav1.Object) (string, error) {
	if usercode.IsNil(obj) {
		return "", errors.New("the object with the required resourceVersion is nil")
	}
	if obj.GetResourceVersion() == "" {
		return "", errors.New("the object has no resourceVersion: use one that was read from the cluster")
	}
	return obj.GetResourceVersion(), nil
}

// lockedOperations adds the resourceVersion as the first operation. It is not a test, because a failed test is
// reported as invalid, and a write of an old resourceVersion as a conflict.
func lockedOperations(body []byte, version string) ([]byte, error) {
	var operations []json.RawMessage
	if err := json.Unmarshal(body, &operations); err != nil {
		return nil, fmt.Errorf("read the JSON patch: %w", err)
	}
	lock, err := json.Marshal(Operation{Op: "replace", Path: "/metadata/resourceVersion", Value: version})
	if err != nil {
		return nil, err
	}
	return json.Marshal(append([]json.RawMessage{lock}, operations...))
}

func lockedMerge(body []byte, version string) ([]byte, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(body, &content); err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	if err := unstructured.SetNestedField(content, version, "metadata", "resourceVersion"); err != nil {
		return nil, fmt.Errorf("add the resourceVersion to the patch: %w", err)
	}
	return json.Marshal(content)
}

// Empty reports whether the patch changes nothing.
func (p PatchBody) Empty() bool {
	text := string(p.body)
	return p.err == nil && (text == "{}" || text == "[]" || text == "null" || text == "")
}

// String returns the patch's body.
func (p PatchBody) String() string { return string(p.body) }

// check rejects patches that Patch cannot send.
func (p PatchBody) check() error {
	if p.err != nil {
		return p.err
	}
	switch p.patchType {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
		return nil
	case "":
		return errors.New("there is no patch: MergeFrom and JSONPatch make one")
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return fmt.Errorf("patches of type %s are made by Apply", p.patchType)
	}
	return fmt.Errorf("there are no patches of type %q", p.patchType)
}

// Patch changes the object that obj identifies, and returns it as the API server has it. It does not change
// obj. For an empty patch it makes no request and returns obj.
//
// Options: DryRun, FieldOwner, FieldValidation, Subresource, SubresourceOf.
//
// Errors: ErrGone; ErrChanged for a Locked patch; the error of a patch that could not be made.
func Patch[T kube.Object](ctx context.Context, c *Client, obj T, patch PatchBody, options ...WriteOption) (T, error) {
	var none T
	if err := patch.check(); err != nil {
		return none, fmt.Errorf("patch a %s: %w", reflect.TypeFor[T](), err)
	}
	t, err := begin(ctx, c, "patch", obj, options, optionsOfUpdate+", SubresourceOf")
	if err != nil {
		return none, err
	}
	if err := t.checkBody(); err != nil {
		return none, t.failed(err)
	}
	switch {
	case t.parent == nil && patch.Empty():
		return obj, nil
	case patch.Empty():
		return none, t.failed(errors.New("the patch is empty"))
	case usercode.IsNil(obj) && reflect.TypeFor[T]().Kind() != reflect.Pointer:
		return none, t.failed(notAType[T]())
	}
	patched, err := sendPatch(ctx, t, patch, obj)
	return patched, t.failed(asChanged(err))
}

// sendPatch sends a patch, and returns the object as one of the type of like.
func sendPatch[T kube.Object](ctx context.Context, t target, patch PatchBody, like T) (T, error) {
	if patch.err != nil {
		var none T
		return none, patch.err
	}
	r := t.request(VerbPatch)
	r.PatchType, r.Body = patch.patchType, patch.body
	return exchange(ctx, t, r, like)
}

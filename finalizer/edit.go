package finalizer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/patchtest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxAttempts is the maximum number of patches, each for a later state. If several clients change a list at the same
// time, one succeeds in each round.
const maxAttempts = 10

// edit adds or removes one entry.
type edit struct {
	name string
	add  bool
	// annotation is removed together with the entry. Optional.
	annotation string
}

// do makes the change if base lacks it, and takes over the result into obj. base is the last known state of the
// object: obj itself, or one that obj was set to.
func (e edit) do(
	ctx context.Context, c *client.Client, obj, base kube.Object, options []client.WriteOption,
) (changed bool, err error) {
	if len(options) > 0 { // Patch has more options
		_, _, err := client.EditMetadata(ctx, c, base, func(_, _ map[string]string) {}, options...)
		if err != nil {
			return false, err
		}
	}
	var last error
	for attempt := range maxAttempts {
		if attempt > 0 {
			live, err := client.GetLive(ctx, c, base)
			if err != nil {
				return false, err
			}
			deleted := e.add && live.GetDeletionTimestamp() != nil // the API server returns Invalid for that too
			if apierrors.IsInvalid(last) && !deleted &&
				(!patchtest.Failed(last) || live.GetResourceVersion() == base.GetResourceVersion()) {
				return false, last // the tests of the patch hold, so it was rejected for another reason
			}
			takeOver(obj, base, live, e.annotation)
			base = live
		}
		if e.add && base.GetDeletionTimestamp() != nil { // also if it has the entry: nothing may be created for it
			return false, fmt.Errorf("%s: %w since %s", kube.KeyOf(base), client.ErrTerminating,
				base.GetDeletionTimestamp())
		}
		operations := e.operations(base)
		if len(operations) == 0 {
			return false, nil
		}
		patched, err := client.Patch(ctx, c, base, client.JSONPatch(operations...), options...)
		switch {
		case err == nil:
			takeOver(obj, base, patched, e.annotation)
			return true, nil
		case apierrors.IsInvalid(err), apierrors.IsConflict(err):
			last = err // a test has failed: the list has changed
		default:
			return false, err
		}
	}
	return false, patchtest.Changed(ctx, c, base, fmt.Errorf("another client has changed the finalizers %d times: %w",
		maxAttempts, last))
}

// operations returns the JSON patch that makes the change in base; none if there is nothing to do.
func (e edit) operations(base kube.Object) []client.Operation {
	const path = "/metadata/finalizers"
	list := base.GetFinalizers()
	operations := []client.Operation{{Op: "test", Path: "/metadata/uid", Value: base.GetUID()}}
	switch {
	case e.add == has(base, e.name):
		return nil
	case e.add && len(list) == 0:
		// The value null tests that the list is missing. Without this test, one of two clients that both see no list
		// would overwrite the entry of the other.
		return append(operations,
			client.Operation{Op: "test", Path: path, Value: nil},
			client.Operation{Op: "add", Path: path, Value: []string{e.name}})
	case e.add:
		// The test is of the whole list: otherwise an entry that was added in between would be added twice.
		return append(operations,
			client.Operation{Op: "test", Path: path, Value: list},
			client.Operation{Op: "add", Path: path + "/-", Value: e.name})
	}
	for i, name := range slices.Backward(list) { // from the end, so that the other indexes stay valid
		if name == e.name {
			at := fmt.Sprintf("%s/%d", path, i)
			operations = append(operations, client.Operation{Op: "test", Path: at, Value: e.name},
				client.Operation{Op: "remove", Path: at})
		}
	}
	if _, exists := base.GetAnnotations()[e.annotation]; exists {
		operations = append(operations,
			client.Operation{Op: "remove", Path: difference.Pointer("metadata", "annotations", e.annotation)})
	}
	return operations
}

// takeOver copies the fields that this package writes (the finalizers and an annotation) from later, a later state of
// the same object, to obj. It copies the resourceVersion too if nothing else has changed since before, the state in
// which obj was read or which it was set to. Changes of the handler in obj do not count.
func takeOver(obj, before, later kube.Object, annotation string) {
	if obj.GetResourceVersion() == before.GetResourceVersion() && equalExcept(before, later, annotation) {
		obj.SetResourceVersion(later.GetResourceVersion())
	}
	obj.SetFinalizers(later.GetFinalizers())
	value, exists := later.GetAnnotations()[annotation]
	if old, existed := obj.GetAnnotations()[annotation]; exists == existed && old == value {
		return
	}
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = value
	if !exists {
		delete(annotations, annotation)
	}
	obj.SetAnnotations(annotations)
}

// equalExcept reports whether two states of an object are equal except the fields that this package writes and those
// that every write changes.
func equalExcept(a, b kube.Object, annotation string) bool {
	encoded := [2][]byte{}
	for i, obj := range []kube.Object{a, b} {
		rest, ok := obj.DeepCopyObject().(kube.Object)
		if !ok {
			return false
		}
		rest.SetFinalizers(nil)
		rest.SetResourceVersion("")
		rest.SetManagedFields(nil)
		annotations := rest.GetAnnotations()
		delete(annotations, annotation)
		if len(annotations) == 0 {
			annotations = nil
		}
		rest.SetAnnotations(annotations)
		rest.GetObjectKind().SetGroupVersionKind(a.GetObjectKind().GroupVersionKind())
		var err error
		if encoded[i], err = json.Marshal(rest); err != nil {
			return false
		}
	}
	return bytes.Equal(encoded[0], encoded[1])
}

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
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxAttempts is how often a patch is made, each time by a later state. Of several that add to one
// list at once, one succeeds each time.
const maxAttempts = 10

// edit is a change of one entry.
type edit struct {
	name string
	add  bool
	// annotation goes together with an entry that is removed. Optional.
	annotation string
}

// do makes the change where base lacks it, and takes over into obj what came of it. base is the
// last state of the object that is known: obj itself, or one that obj has been given.
func (e edit) do(ctx context.Context, c *client.Client, obj, base kube.Object, given []client.WriteOption) (changed bool, err error) {
	var options []client.UpdateOption
	for _, option := range given {
		options = append(options, option)
	}
	var last error
	for attempt := range maxAttempts {
		if attempt > 0 {
			live, err := client.Live(ctx, c, base)
			if err != nil {
				return false, err
			}
			deleted := e.add && live.GetDeletionTimestamp() != nil // what the API server calls invalid too
			if apierrors.IsInvalid(last) && !deleted && (!client.IsPatchTestFailed(last) || live.GetResourceVersion() == base.GetResourceVersion()) {
				return false, last // no test of ours is what it refuses
			}
			takeOver(obj, base, live, e.annotation)
			base = live
		}
		if e.add && base.GetDeletionTimestamp() != nil { // also with the entry: nothing may be made for it
			return false, fmt.Errorf("%s: %w since %s", kube.KeyOf(base), client.ErrTerminating, base.GetDeletionTimestamp())
		}
		operations := e.operations(base)
		if len(operations) == 0 {
			return false, nil
		}
		answer, err := client.Patch(ctx, c, base, client.JSONPatch(operations...), options...)
		switch {
		case err == nil:
			takeOver(obj, base, answer, e.annotation)
			return true, nil
		case apierrors.IsInvalid(err), apierrors.IsConflict(err):
			last = err // a test has failed: the list is another one
		default:
			return false, err
		}
	}
	return false, client.ChangedError(ctx, c, base, fmt.Errorf("the finalizers have changed %d times meanwhile: %w", maxAttempts, last))
}

// operations are the JSON patch that makes the change in base; none when there is nothing to do.
func (e edit) operations(base kube.Object) []client.Operation {
	const path = "/metadata/finalizers"
	list := base.GetFinalizers()
	operations := []client.Operation{{Op: "test", Path: "/metadata/uid", Value: base.GetUID()}}
	switch {
	case e.add == Has(base, e.name):
		return nil
	case e.add && len(list) == 0:
		// Null is what the test of a missing list asks for. Without it, two that both see no list
		// would each write their own.
		return append(operations,
			client.Operation{Op: "test", Path: path, Value: nil},
			client.Operation{Op: "add", Path: path, Value: []string{e.name}})
	case e.add:
		// Of the whole list, not of one entry: the own one may have been added meanwhile, and would
		// be there twice.
		return append(operations,
			client.Operation{Op: "test", Path: path, Value: list},
			client.Operation{Op: "add", Path: path + "/-", Value: e.name})
	}
	for i, name := range slices.Backward(list) { // from the end, so that the indexes stay true
		if name == e.name {
			at := fmt.Sprintf("%s/%d", path, i)
			operations = append(operations, client.Operation{Op: "test", Path: at, Value: e.name}, client.Operation{Op: "remove", Path: at})
		}
	}
	if _, there := base.GetAnnotations()[e.annotation]; there {
		operations = append(operations, client.Operation{Op: "remove", Path: client.JSONPointer("metadata", "annotations", e.annotation)})
	}
	return operations
}

// takeOver notes in obj what later, another state of the same object, has of what this package
// writes: the finalizers and an annotation. The resourceVersion is taken over if nothing else has
// changed since before, which is the state that obj was read in or given last; what the handler has
// changed in obj does not count then.
func takeOver(obj, before, later kube.Object, annotation string) {
	if obj.GetResourceVersion() == before.GetResourceVersion() && same(before, later, annotation) {
		obj.SetResourceVersion(later.GetResourceVersion())
	}
	obj.SetFinalizers(later.GetFinalizers())
	value, is := later.GetAnnotations()[annotation]
	if old, was := obj.GetAnnotations()[annotation]; is == was && old == value {
		return
	}
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = value
	if !is {
		delete(annotations, annotation)
	}
	obj.SetAnnotations(annotations)
}

// same reports whether two states of an object differ in nothing but what this package writes,
// and what every write changes.
func same(a, b kube.Object, annotation string) bool {
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

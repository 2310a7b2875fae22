package ownerref

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Adopt makes owner the controller of an object that is there and has none: of Pods, say, that
// a selector finds. It returns the object as the API server has it then; child itself is not
// changed. When owner is its controller already, as child shows it, there is no request.
//
// Flow:
//
//  1. A child that is being deleted, or has another controller, is refused.
//  2. owner is read from the API server: a cache may still show an owner that has been deleted,
//     and whatever that came to own would be deleted as well.
//  3. The owner references of child are patched, if it is still that child, is not being
//     deleted, and has the references that were seen.
//
// Nothing is tried twice. Permissions: get of both, patch of the child.
//
// Errors: *AlreadyOwnedError; client.ErrTerminating when either is being deleted, which is no time
// to come to own something, or to be owned; ErrScope; client.ErrGone and client.ErrReplaced, of
// either; client.ErrChanged when the references of child are not those that were seen.
func Adopt[T kube.Object](ctx context.Context, c *client.Client, owner kube.Object, child T, options ...Option) (T, error) {
	var none T
	refs, err := withReference(ctx, c, owner, child, true, options)
	if err != nil {
		return none, fmt.Errorf("adopt: %w", err)
	}
	if reflect.DeepEqual(refs, child.GetOwnerReferences()) {
		return child, nil
	}
	if child.GetDeletionTimestamp() != nil {
		return none, fmt.Errorf("adopt %s: %w", kube.KeyOf(child), client.ErrTerminating)
	}
	live, err := client.Live(ctx, c, owner)
	if err != nil {
		return none, fmt.Errorf("adopt %s: look at the owner: %w", kube.KeyOf(child), err)
	}
	if live.GetDeletionTimestamp() != nil {
		return none, fmt.Errorf("adopt %s: the owner %s: %w", kube.KeyOf(child), kube.KeyOf(owner), client.ErrTerminating)
	}
	adopted, err := write(ctx, c, child, refs, client.Operation{Op: "test", Path: "/metadata/deletionTimestamp"})
	if err != nil {
		return none, fmt.Errorf("adopt: %w", err)
	}
	return adopted, nil
}

// Release makes owner no owner of child any longer, as a controller does with what its selector
// does not find any more; other owners stay. It returns the object as the API server has it
// then; child itself is not changed. When owner is no owner, as child shows it, there is no
// request.
//
// Errors: client.ErrGone, which most callers ignore; client.ErrReplaced; client.ErrChanged when
// the references of child are not those that were seen.
func Release[T kube.Object](ctx context.Context, c *client.Client, owner kube.Object, child T) (T, error) {
	var none T
	switch {
	case kube.IsNil(owner):
		return none, errors.New("release: the owner is nil")
	case kube.IsNil(child):
		return none, errors.New("release: the child is nil")
	case !Has(owner, child):
		return child, nil
	}
	released, err := write(ctx, c, child, without(child.GetOwnerReferences(), owner))
	if err != nil {
		return none, fmt.Errorf("release: %w", err)
	}
	return released, nil
}

// write replaces the owner references of child, if they are what child shows, and if what the
// tests ask is so.
func write[T kube.Object](ctx context.Context, c *client.Client, child T, refs []metav1.OwnerReference, tests ...client.Operation) (T, error) {
	const path = "/metadata/ownerReferences"
	var none T
	if child.GetUID() == "" {
		return none, fmt.Errorf("%s has no uid, so that nothing can tell whether it is still the same: use an object that was read from the cluster",
			kube.KeyOf(child))
	}
	seen := client.Operation{Op: "test", Path: path}
	if present := child.GetOwnerReferences(); len(present) > 0 {
		seen.Value = present // a test for null: that there is none
	}
	operations := append([]client.Operation{{Op: "test", Path: "/metadata/uid", Value: child.GetUID()}, seen}, tests...)
	if len(refs) == 0 {
		operations = append(operations, client.Operation{Op: "remove", Path: path})
	} else {
		operations = append(operations, client.Operation{Op: "add", Path: path, Value: refs})
	}
	patched, err := client.Patch(ctx, c, child, client.JSONPatch(operations...))
	if err == nil || !apierrors.IsInvalid(err) {
		return patched, err
	}
	return none, whyRefused(ctx, c, child, tests, err)
}

// whyRefused finds out which test it was that failed: the API server does not say.
func whyRefused[T kube.Object](ctx context.Context, c *client.Client, child T, tests []client.Operation, refused error) error {
	live, err := client.Live(ctx, c, child)
	switch {
	case err != nil:
		return err
	case len(tests) > 0 && live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s: %w", kube.KeyOf(child), client.ErrTerminating)
	case reflect.DeepEqual(live.GetOwnerReferences(), child.GetOwnerReferences()):
		return refused // what was to be written is refused, not the condition
	}
	return client.NewChanged(ctx, c, child, errors.New("its owner references are not those that were seen: read it again"))
}

package ownerref

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/patchtest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Adopt makes owner the controller of an existing object without a controller, such as a Pod that a selector
// matches. It returns the object as the API server has it after the write, and does not change child. If
// child shows owner as its controller already, Adopt makes no request.
//
// Steps:
//
//  1. Adopt returns an error if child is being deleted or has another controller.
//  2. It reads owner from the API server. A cache may still have a deleted owner, and the garbage
//     collector would delete the adopted child of such an owner.
//  3. It patches the owner references of child, on the conditions that child has the same uid, is not
//     being deleted, and has the owner references of the argument.
//
// Adopt does not retry. Permissions: get of both, patch of the child.
//
// Errors: *AlreadyOwnedError; client.ErrTerminating if either object is being deleted; ErrScope;
// client.ErrGone and client.ErrReplaced for either object; client.ErrChanged if the owner references of child
// have changed since it was read.
func Adopt[T kube.Object](ctx context.Context, c *client.Client, owner kube.Object, child T) (T, error) {
	var none T
	refs, err := withReference(ctx, c, owner, child, true)
	if err != nil {
		return none, fmt.Errorf("adopt: %w", err)
	}
	if reflect.DeepEqual(refs, child.GetOwnerReferences()) {
		return child, nil
	}
	if child.GetDeletionTimestamp() != nil {
		return none, fmt.Errorf("adopt %s: %w", kube.KeyOf(child), client.ErrTerminating)
	}
	live, err := client.GetLive(ctx, c, owner)
	if err != nil {
		return none, fmt.Errorf("adopt %s: read the owner: %w", kube.KeyOf(child), err)
	}
	if live.GetDeletionTimestamp() != nil {
		return none, fmt.Errorf("adopt %s: the owner %s: %w", kube.KeyOf(child), kube.KeyOf(owner),
			client.ErrTerminating)
	}
	adopted, err := write(ctx, c, child, refs, client.Operation{Op: "test", Path: "/metadata/deletionTimestamp"})
	if err != nil {
		return none, fmt.Errorf("adopt: %w", err)
	}
	return adopted, nil
}

// Release removes owner from the owners of child. Controllers use it when their selector does not match child
// anymore. Other owners stay. It returns the object as the API server has it after the write, and does not
// change child. If child has no reference to owner, Release makes no request.
//
// Errors: client.ErrGone, which most callers ignore; client.ErrReplaced; client.ErrChanged if the owner
// references of child have changed since it was read.
func Release[T kube.Object](ctx context.Context, c *client.Client, owner kube.Object, child T) (T, error) {
	var none T
	switch {
	case usercode.IsNil(owner):
		return none, errors.New("release: the owner is nil")
	case usercode.IsNil(child):
		return none, errors.New("release: the child is nil")
	case indexOf(child.GetOwnerReferences(), owner) < 0:
		return child, nil
	}
	released, err := write(ctx, c, child, without(child.GetOwnerReferences(), owner))
	if err != nil {
		return none, fmt.Errorf("release: %w", err)
	}
	return released, nil
}

// write replaces the owner references of child by refs with one JSON patch. The patch succeeds only if the uid
// and the owner references are those of child, and all tests hold.
func write[T kube.Object](
	ctx context.Context, c *client.Client, child T, refs []metav1.OwnerReference, tests ...client.Operation,
) (T, error) {
	const path = "/metadata/ownerReferences"
	var none T
	if child.GetUID() == "" {
		return none, fmt.Errorf("%s has no uid, which identifies it: use an object that was read from the cluster",
			kube.KeyOf(child))
	}
	unchanged := client.Operation{Op: "test", Path: path} // without a value it tests that the field is missing
	if present := child.GetOwnerReferences(); len(present) > 0 {
		unchanged.Value = present
	}
	operations := append([]client.Operation{{Op: "test", Path: "/metadata/uid", Value: child.GetUID()}, unchanged},
		tests...)
	if len(refs) == 0 {
		operations = append(operations, client.Operation{Op: "remove", Path: path})
	} else {
		operations = append(operations, client.Operation{Op: "add", Path: path, Value: refs})
	}
	patched, err := client.Patch(ctx, c, child, client.JSONPatch(operations...))
	if err == nil || !apierrors.IsInvalid(err) {
		return patched, err
	}
	return none, explainRejection(ctx, c, child, tests, err)
}

// explainRejection reads child to find out which test of the patch failed, because the response does not name
// it. It returns rejection if no test can have failed.
func explainRejection[T kube.Object](
	ctx context.Context, c *client.Client, child T, tests []client.Operation, rejection error,
) error {
	live, err := client.GetLive(ctx, c, child)
	switch {
	case err != nil:
		return err
	case len(tests) > 0 && live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s: %w", kube.KeyOf(child), client.ErrTerminating)
	case reflect.DeepEqual(live.GetOwnerReferences(), child.GetOwnerReferences()):
		return rejection // the API server rejects the new references themselves
	}
	return patchtest.Changed(ctx, c, child, errors.New("its owner references have changed: read it again"))
}

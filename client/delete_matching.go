package client

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Limits of DeleteMatching.
const (
	maxDeleteAttempts = 3  // for an object that other clients change meanwhile
	maxDeleteErrors   = 10 // then the call ends, because the other deletions would fail too
)

// DeleteMatching deletes the selected objects of type T for which match returns true: for garbage collection of
// objects that no owner reference covers. It returns the deleted objects, in the state that match has accepted. Kinds
// that live in namespaces require Namespaces (kube.AllNamespaces for all), or Config.Namespace.
//
//	copies := kube.Selection{Namespaces: []string{kube.AllNamespaces}, LabelSelector: "copy-of=rates"}
//	deleted, err := client.DeleteMatching(ctx, c, copies, func(live *corev1.ConfigMap) (bool, error) {
//		return !needed[live.Namespace], nil
//	})
//
// Flow: DeleteMatching lists the selection from the API server, never from informers, and sends one delete for each
// object that match accepts, with the object's uid and resourceVersion as preconditions. If an object has changed
// since, DeleteMatching reads it again with the same selectors, and calls match again, up to three times. Objects that
// are being deleted are skipped: match is not called for them. It never removes finalizers, which belong to other
// programs; WaitForNone waits for them.
//
// Guarantees: DeleteMatching only deletes an object that the selectors select, in a state that match has accepted. An
// object of the same name that was created since is another object.
//
// Options: those of DeleteAllOf, which deletes a selection in one request. With DryRun the API server deletes nothing,
// and the result has the objects that it would delete. As in DeleteAllOf, a selection without selectors is an error.
//
// Errors: an error of match ends the call at once. Errors of deletions are collected, and the objects that follow are
// deleted nevertheless, until 10 have failed; ErrChanged for an object that changed in every attempt. Objects that no
// longer exist are not an error. The deleted objects are returned with any error; if the response to a request is lost,
// another one may have been deleted. It needs the verbs list and delete.
func DeleteMatching[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, match func(live T) (bool, error),
	options ...DeleteOption,
) ([]T, error) {
	if match == nil {
		return nil, errors.New("delete matching objects: the function match is nil: DeleteAllOf deletes a " +
			"whole selection")
	}
	targets, err := beginSelection[T](ctx, c, "delete matching objects", selection, options,
		"DryRun, GracePeriod, Propagation")
	for i := 0; i < len(targets) && err == nil; i++ {
		err = targets[i].failed(targets[i].checkDestructive())
	}
	if err != nil {
		return nil, err
	}
	d, more := deletion[T]{match: match}, true
	for i := 0; i < len(targets) && err == nil && more; i++ {
		d.target = targets[i]
		d.target.fromAPI, d.target.resume, d.target.action = true, true, "delete"
		err = list(ctx, d.target, func(obj T, _ error) bool {
			more = d.next(ctx, obj)
			return more
		})
	}
	return d.deleted, errors.Join(append(d.errs, d.matchErr, err)...)
}

// deletion is one call of DeleteMatching.
type deletion[T kube.Object] struct {
	target target
	match  func(live T) (bool, error)

	deleted  []T
	errs     []error // of objects, which do not end the call
	matchErr error   // of match, which ends it
}

// next deletes obj if it matches. It returns false if the call has ended.
func (d *deletion[T]) next(ctx context.Context, obj T) bool {
	t, key := d.target, kube.KeyOf(obj)
	t.key = key
	for attempt := 1; ; attempt++ {
		t.uid, t.version = obj.GetUID(), obj.GetResourceVersion() // before match, which may change obj
		t.model = obj
		matches, err := d.matches(obj)
		if err != nil {
			d.matchErr = fmt.Errorf("delete %s: match it: %w", t, err)
			return false
		}
		if !matches {
			return true
		}
		if err = t.deleteExactly(ctx); err == nil {
			d.deleted = append(d.deleted, obj)
			return true
		}
		found := false
		if errors.Is(err, ErrChanged) && attempt < maxDeleteAttempts {
			if obj, found, err = d.read(ctx, key); found {
				continue
			}
		}
		if err != nil && !errors.Is(err, ErrGone) { // otherwise another client has deleted it, or changed its labels
			d.errs = append(d.errs, t.failed(err))
		}
		return ctx.Err() == nil && len(d.errs) < maxDeleteErrors
	}
}

// matches reports whether obj is to be deleted.
func (d *deletion[T]) matches(obj T) (bool, error) {
	if obj.GetDeletionTimestamp() != nil {
		return false, nil
	}
	matches, err := d.match(obj)
	return matches, usercode.Error(err)
}

// deleteExactly deletes the object with the uid and the resourceVersion in the settings.
func (t target) deleteExactly(ctx context.Context) error {
	if t.uid == "" || t.version == "" {
		return errors.New("the API server returned it without a uid or a resourceVersion, so a change cannot " +
			"be detected")
	}
	return t.delete(ctx)
}

// read reads one object of the selection again. found is false if it does not exist anymore, or is not selected.
func (d *deletion[T]) read(ctx context.Context, key kube.Key) (obj T, found bool, err error) {
	t := d.target
	t.key.Namespace = key.Namespace
	named := fields.OneTermEqualSelector(fieldName, key.Name)
	if t.fields != nil {
		named = fields.AndSelectors(t.fields, named)
	}
	t.fields = named
	objects, _, err := listState[T](ctx, t)
	for _, obj := range objects {
		if kube.KeyOf(obj) == key {
			return obj, true, nil
		}
	}
	return obj, false, err
}

package status

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrNoSubresource says that a kind has no status subresource, so that its status cannot be
// written apart from the rest.
var ErrNoSubresource = errors.New("the kind has no status subresource")

// maxAttempts is how often Commit tries to write.
const maxAttempts = 5

// Commit writes what differs between the statuses of before, the object as a run found it, and of
// after, as the run leaves it: in one patch to the status subresource, or in none when nothing
// differs. changed reports whether something was written. It is safe to call at the end of every
// run; middleware.Status does so. Neither object is changed, and whatever else differs between
// them is left alone.
//
// # Flow
//
//  1. The difference is taken, without a request. Nothing: done.
//  2. One patch is sent. Where all that it changes is known to be there, it is a JSON patch of
//     these fields and conditions, under the test that each condition is where it was seen, and
//     that the object is the same (uid): other writes to the object do not disturb. Otherwise (the
//     first status, a new condition, a run that wrote to the object itself) it is a merge patch
//     with a lock: the resourceVersion of after.
//  3. When the test or the lock fails, the live object is read, the patch is made anew of what the
//     run did, and sent; 5 times at most.
//
// # Guarantees
//
//   - Of status.conditions, if its entries have types, only those that differ between before and
//     after are written: what others write meanwhile to theirs is kept. Other lists are written as a
//     whole: who shares such a list needs client.Apply.
//   - Nothing is written to another object that has got the name meanwhile.
//   - An object that is gone, or was replaced, is no error: the run ended, and nobody is left to
//     read its status. Then changed is false.
//
// # Caller must
//
// Let the resourceVersion of after belong to its content. A handler that writes to the object
// itself takes over either nothing of the answer, or all of it (*obj = *answer). In the second case
// nothing tells the run's changes from those that came with the answer: when one of these
// conditions has been changed once more by the time of a retry, Commit gives up with ErrChanged,
// for the run to be done again.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// # Errors
//
// Objects that are not two states of one object of the cluster, a status of which no patch can be
// made, two conditions of one type: before any request. ErrNoSubresource; client.ErrChanged,
// of which apierrors.IsConflict is true too, after the last attempt; otherwise what the request met.
func Commit[T kube.Object](ctx context.Context, c *client.Client, before, after T, options ...client.Option) (changed bool, err error) {
	if err := check(c, before, after); err != nil {
		return false, fmt.Errorf("commit the status: %w", err)
	}
	if sameStatus(before, after) {
		return false, nil
	}
	run, err := runOf(before, after)
	if err != nil {
		return false, fmt.Errorf("commit the status of %s: %w", kube.KeyOf(after), err)
	}
	if run.mine.empty() {
		return false, nil
	}
	changed, err = commit(ctx, c, after, run, options)
	if err != nil {
		return false, fmt.Errorf("commit the status: %w", err)
	}
	return changed, nil
}

// run is what a run did to a status.
type run struct {
	mine changeSet
	// seen is the status of the last state that is known, which the patch is made for.
	seen map[string]any
	// tookOver says that the run has taken over a later state of the object: what is mine may have
	// come with it.
	tookOver bool
}

func runOf(before, after kube.Object) (run, error) {
	from, err := contentOf(before)
	if err != nil {
		return run{}, err
	}
	to, err := contentOf(after)
	if err != nil {
		return run{}, err
	}
	r := run{seen: from, tookOver: after.GetResourceVersion() != before.GetResourceVersion()}
	if r.tookOver {
		r.seen = to
	}
	r.mine, err = difference(from, to)
	return r, err
}

// commit writes what a run has changed in an object, of which base is the last known state.
func commit[T kube.Object](ctx context.Context, c *client.Client, base T, r run, options []client.Option) (bool, error) {
	options = append(slices.Clip(options), client.Subresource("status"))
	var last error
	for attempt := range maxAttempts {
		if attempt > 0 {
			live, err := client.Live(ctx, c, base)
			if err != nil {
				return false, unlessGone(err)
			}
			if err := r.catchUp(live); err != nil {
				return false, fmt.Errorf("%w: %w", err, last)
			}
			if r.mine.empty() {
				return false, nil // somebody else has said the same
			}
			base = live
		}
		patch, err := r.patch(base)
		if err != nil {
			return false, err
		}
		_, err = client.Patch(ctx, c, base, patch, options...)
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsConflict(err) || testFailed(err):
			last = err
		case errors.Is(err, kube.ErrNotServed):
			return false, noSubresource(ctx, c, base, err)
		default:
			return false, unlessGone(err)
		}
	}
	if !apierrors.IsConflict(last) {
		// The API server calls a failed test invalid. It is a conflict: the next run may succeed.
		last = fmt.Errorf("%w: %w", client.ErrChanged, apierrors.NewConflict(resourceOf(ctx, c, base), base.GetName(), last))
	}
	return false, fmt.Errorf("other writes came first, %d times: %w", maxAttempts, last)
}

// testFailed reports whether the API server has refused a JSON patch that does not fit. What it
// refuses because of the result has causes.
func testFailed(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsInvalid(err) && errors.As(err, &status) &&
		(status.Status().Details == nil || len(status.Status().Details.Causes) == 0)
}

// unlessGone returns err, or nil when it says that there is no such object any longer.
func unlessGone(err error) error {
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced) {
		return nil
	}
	return err
}

// catchUp leaves of the run's changes those that the live object lacks.
func (r *run) catchUp(live kube.Object) error {
	content, err := contentOf(live)
	if err != nil {
		return err
	}
	list, _ := conditionList(content)
	var left []conditionChange
	for _, change := range r.mine.conditions {
		is := find(list, change.conditionType)
		if reflect.DeepEqual(is, change.to) {
			continue
		}
		if r.tookOver && !reflect.DeepEqual(is, change.from) {
			return fmt.Errorf("the condition %s has been changed by others too, and it is not clear by whom first", change.conditionType)
		}
		left = append(left, change)
	}
	r.mine.conditions, r.seen = left, content
	return nil
}

// noSubresource finds out what is not served: the kind, or its status.
func noSubresource(ctx context.Context, c *client.Client, obj kube.Object, err error) error {
	kind, kindErr := c.Cluster().KindOf(obj)
	if kindErr != nil {
		return err
	}
	if _, servedErr := c.Cluster().Resource(ctx, kind); servedErr != nil {
		return err
	}
	return fmt.Errorf("%s %s: %w: declare it in the CustomResourceDefinition (subresources: {status: {}}), or write the status with client.Patch: %w",
		kind.Kind, kube.KeyOf(obj), ErrNoSubresource, err)
}

// resourceOf names obj's resource for an error. Its kind has been found before: there is no request.
func resourceOf(ctx context.Context, c *client.Client, obj kube.Object) schema.GroupResource {
	kind, err := c.Cluster().KindOf(obj)
	if err != nil {
		return schema.GroupResource{}
	}
	resource, err := c.Cluster().Resource(ctx, kind)
	if err != nil {
		return schema.GroupResource{Group: kind.Group, Resource: kind.Kind}
	}
	return resource.GroupResource()
}

// check finds what is wrong with the arguments.
func check(c *client.Client, before, after kube.Object) error {
	if c == nil {
		return errors.New("the client is nil: client.New makes one")
	}
	if isNil(before) || isNil(after) {
		return errors.New("an object is nil: both states of the object are needed")
	}
	var errs []error
	if kube.KeyOf(before) != kube.KeyOf(after) || before.GetUID() != after.GetUID() {
		errs = append(errs, fmt.Errorf("%s (uid %s) and %s (uid %s) are not two states of one object",
			kube.KeyOf(before), before.GetUID(), kube.KeyOf(after), after.GetUID()))
	}
	if after.GetUID() == "" || after.GetResourceVersion() == "" {
		errs = append(errs, fmt.Errorf("%s has no uid or no resourceVersion: use an object that was read from the cluster", kube.KeyOf(after)))
	}
	return errors.Join(errs...)
}

func isNil(obj kube.Object) bool {
	value := reflect.ValueOf(obj)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

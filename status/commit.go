package status

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
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
//     these fields and conditions, under the test that each condition is where it was seen, with the
//     same status and observedGeneration, and that the object is the same
//     (uid): other writes to the object do not disturb. Otherwise (the
//     first status, a new condition, a run that wrote to the object itself) there is a lock: the
//     resourceVersion of after.
//  3. When the test or the lock fails, the live object is read, the patch is made anew of what the
//     run did, and sent; 5 times at most.
//
// # Guarantees
//
//   - Of status.conditions, if its entries have types, only those that differ between before and
//     after are written: what others write meanwhile to theirs is kept. Other lists are written as a
//     whole: who shares such a list needs client.Apply.
//   - Where a condition in the cluster has the status already that the run has given it, because an
//     earlier run whose response was lost has said so, or another replica, it keeps its
//     lastTransitionTime, however old the state is that the run began with.
//   - A condition with the observedGeneration of a later generation of the object is not changed, and
//     status.observedGeneration is not lowered, unless the run has found them so: in an object that was
//     restored from a backup with its status. The generation of a change is the condition's
//     observedGeneration, or that of before when the run has set none.
//   - Fields of conditions that T does not know are kept. If the patch has to write the whole list
//     (a condition changes together with an object in the status that is not there yet), the list is
//     read first.
//   - Nothing is written to another object that has got the name meanwhile.
//   - An object that is gone, or was replaced, is no error: the run ended, and nobody is left to
//     read its status. Then changed is false.
//
// # Caller must
//
// Let the resourceVersion of after belong to its content. A handler that writes to the object
// itself takes over either nothing of the answer, or all of it (*obj = *answer). In the second case
// nothing tells the run's changes from those that came with the answer: when one of these fields or
// conditions has been changed once more by the time of a retry, Commit gives up with ErrChanged,
// for the run to be done again. Only what was changed back to what before has is not noticed, and
// written once more.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// # Errors
//
// Objects that are not two states of one object of the cluster, a status of which no patch can be
// made, a change of one of several conditions of one type, or of one without a type: before any
// request. ErrNoSubresource; client.ErrChanged, of which apierrors.IsConflict is true too, after the
// last attempt; otherwise what the request met.
func Commit[T kube.Object](ctx context.Context, c *client.Client, before, after T, options ...client.WriteOption) (changed bool, err error) {
	r, err := runOf(c, before, after)
	if err != nil {
		return false, fmt.Errorf("commit the status: %w", err)
	}
	if r.mine.empty() {
		return false, nil
	}
	version, err := commit(ctx, c, after, r, options)
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("commit the status: %w", err)
	}
	return version != "", nil
}

// CommitLocked writes what differs between the statuses of before and after, as Commit does, but
// only if the object is still at the resourceVersion of after. It is for what has to be noted before
// a run goes on: the name of something outside of the cluster that is about to be made, for one. A
// copy that is old must not make forgotten what it does not know of.
//
// after gets the resourceVersion that the object has then, and is the before of the next commit.
// When nothing differs there is no request, and the lock is not tested. In a Handler with
// middleware.Status around it, middleware.CommitStatus does all that.
//
// Options: those of Commit.
//
// Errors: those of Commit, where client.ErrChanged comes at once when the object has been written to;
// client.ErrGone and client.ErrReplaced. After any of them the run has to end: nothing is noted, or,
// when the answer was lost, nobody knows whether it is.
func CommitLocked[T kube.Object](ctx context.Context, c *client.Client, before, after T, options ...client.WriteOption) (changed bool, err error) {
	r, err := runOf(c, before, after)
	if err != nil {
		return false, fmt.Errorf("commit the status: %w", err)
	}
	if r.mine.empty() {
		return false, nil
	}
	r.locked = true
	version, err := commit(ctx, c, after, r, options)
	if err != nil {
		return false, fmt.Errorf("commit the status: %w", err)
	}
	if version == "" {
		return false, nil
	}
	after.SetResourceVersion(version)
	return true, nil
}

// run is what a run did to a status.
type run struct {
	mine changeSet
	// from is the status as the run found it.
	from map[string]any
	// seen is the status of the last state that is known, which the patch is made for.
	seen map[string]any
	// exact says that seen is all that is there, and nothing else. A Go type shows it without the
	// fields that it does not know, and with zeros for those that are missing; a state that was taken
	// over has the run's changes in it.
	exact bool
	// tookOver says that the run has taken over a later state of the object, that of version: what is
	// mine may have come with it.
	tookOver bool
	version  string
	// generation is the object's as the run found it; 0 for kinds without one.
	generation int64
	// made is the JSON patch of what is mine, for the state seen; nil: not computed.
	made *jsonPatch
	// locked says that nothing may be written to a later state than the last known one.
	locked bool
}

// runOf finds out what a run did. Nothing is mine when the status has not changed.
func runOf(c *client.Client, before, after kube.Object) (run, error) {
	if err := check(c, before, after); err != nil {
		return run{}, err
	}
	if sameStatus(before, after) {
		return run{}, nil
	}
	from, err := contentOf(before)
	if err != nil {
		return run{}, fmt.Errorf("%s: %w", kube.KeyOf(after), err)
	}
	to, err := contentOf(after)
	if err != nil {
		return run{}, fmt.Errorf("%s: %w", kube.KeyOf(after), err)
	}
	r := run{
		from: from, seen: from, version: after.GetResourceVersion(), tookOver: after.GetResourceVersion() != before.GetResourceVersion(),
		generation: before.GetGeneration(),
	}
	if r.tookOver {
		r.seen = to
	} else {
		_, r.exact = after.(runtime.Unstructured)
	}
	if r.mine, err = difference(from, to); err != nil {
		return run{}, fmt.Errorf("%s: %w", kube.KeyOf(after), err)
	}
	return r, nil
}

// commit writes what a run has changed in an object, of which base is the last known state. It
// returns the resourceVersion that the object has then; "" when nothing was left to write.
func commit(ctx context.Context, c *client.Client, base kube.Object, r run, given []client.WriteOption) (version string, err error) {
	options := []client.UpdateOption{client.Subresource("status")}
	for _, option := range given {
		options = append(options, option)
	}
	var last error
	isLive := false // base has been read from the API server, by us
	for attempt := range maxAttempts {
		if attempt > 0 || !r.suffices() {
			live, err := readAll(ctx, c, base, r.locked)
			if err != nil {
				return "", err
			}
			if attempt > 0 && isLive && client.IsPatchTestFailed(last) && live.GetResourceVersion() == base.GetResourceVersion() {
				return "", last // no test of ours is what was refused
			}
			content, err := contentOf(live)
			if err != nil {
				return "", fmt.Errorf("%s: %w", kube.KeyOf(live), err)
			}
			if err := r.catchUp(content, live.GetResourceVersion()); err != nil {
				return "", client.ChangedError(ctx, c, base, err)
			}
			if r.mine.empty() {
				return "", nil // somebody else has said the same
			}
			base, isLive = live, true
		}
		patch, err := r.patch(base)
		if err != nil {
			return "", err
		}
		answer, err := client.Patch(ctx, c, base, patch, options...)
		switch {
		case err == nil:
			return answer.GetResourceVersion(), nil
		case client.IsPatchTestFailed(err), apierrors.IsConflict(err) && !r.locked:
			last = err
		case errors.Is(err, kube.ErrNotServed):
			return "", noSubresource(ctx, c, base, err)
		default:
			return "", err
		}
	}
	return "", client.ChangedError(ctx, c, base, fmt.Errorf("other writes came first, %d times: %w", maxAttempts, last))
}

// readAll reads the live object with all its fields, also those that its Go type does not know.
// If it has to be unchanged, its resourceVersion is that of obj.
func readAll(ctx context.Context, c *client.Client, obj kube.Object, unchanged bool) (kube.Object, error) {
	kind, err := c.Cluster().KindOf(obj)
	if err != nil {
		return nil, err
	}
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(kind)
	whole.SetNamespace(obj.GetNamespace())
	whole.SetName(obj.GetName())
	whole.SetUID(obj.GetUID())
	whole.SetResourceVersion(obj.GetResourceVersion())
	if unchanged {
		return client.Live[kube.Object](ctx, c, whole, client.IfUnchanged())
	}
	return client.Live[kube.Object](ctx, c, whole)
}

// catchUp leaves of the run's changes those that the live status, of this version, lacks, and that
// are not about an older generation than what is there.
func (r *run) catchUp(content map[string]any, version string) error {
	if own := generationIn(r.mine.fields); own > 0 && generationIn(content) > max(own, generationIn(r.from)) {
		r.mine.fields = without(r.mine.fields, observedField)
	}
	unclear := r.tookOver && version != r.version // otherwise nothing came after what was taken over
	if unclear {
		if field := contested(r.mine.fields, r.from, content, "status"); field != "" {
			return fmt.Errorf("%s has been changed by others too, and it is not clear by whom first", field)
		}
	}
	list, _ := conditionList(content)
	var left []conditionChange
	for _, change := range r.mine.conditions {
		is := find(list, change.conditionType)
		if reflect.DeepEqual(is, change.made(is)) || change.isOutdated(is, r.generation) {
			continue
		}
		if unclear && !says(is, change.from) {
			return fmt.Errorf("the condition %s has been changed by others too, and it is not clear by whom first", change.conditionType)
		}
		left = append(left, change)
	}
	r.mine.conditions, r.seen, r.exact, r.made = left, content, true, nil
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

// check finds what is wrong with the arguments.
func check(c *client.Client, before, after kube.Object) error {
	if c == nil {
		return errors.New("the client is nil: client.New makes one")
	}
	if usercode.IsNil(before) || usercode.IsNil(after) {
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

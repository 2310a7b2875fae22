package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/patchtest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxAttempts is the maximum number of patches that Commit sends.
const maxAttempts = 5

// Commit writes the differences between the status of before, the object as a run received it, and that of after, the
// object at the end of the run. It sends one patch to the status subresource. If nothing differs, it sends no patch.
// changed reports whether it wrote. It may be called at the end of every run, as middleware.Status does. It changes
// neither object, and ignores differences outside of the status. If a test of the patch fails, it reads the live object
// and creates the patch again from the changes of the run, at most 5 times.
//
// # Guarantees
//
//   - Commit writes only those entries of status.conditions, if they have types, that differ between before and
//     after. It writes other lists as a whole: clients that share such a list must use client.Apply.
//   - If a condition in the cluster already has the status that the run has set, it keeps its lastTransitionTime,
//     however outdated before is. An earlier run with a lost response, or another replica, may have written it.
//   - Commit does not change a condition with the observedGeneration of a later generation of the object, and does
//     not lower status.observedGeneration, unless before has them: the object was restored from a backup with its
//     status. The generation of a change is the condition's observedGeneration, or that of before if the run has set
//     none.
//   - Commit corrects changed conditions as Set does, and keeps fields of conditions that T does not have.
//   - An object that is gone, or was replaced, is not an error, because it needs no status. changed is then false.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// Errors. Before any request: two objects; a status that cannot be patched; a change of a condition whose type is not
// unique. After the other changes were written: conditions that Commit has
// left out because the API server would reject the whole status. kube.ErrNotServed for a kind without a status
// subresource. client.ErrChanged, for which apierrors.IsConflict is true too, after the last attempt.
func Commit[T kube.Object](
	ctx context.Context, c *client.Client, before, after T, options ...client.WriteOption,
) (changed bool, err error) {
	version, err := commit(ctx, c, before, after, false, options)
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced) {
		return false, nil
	}
	return version != "", err
}

// CommitLocked writes the differences between the statuses of before and after like Commit, but only if the object
// still has the resourceVersion of after. It is for information that must be recorded before a run continues, such as
// the name of an object outside of the cluster that the run will create: an outdated copy must not overwrite later
// values.
//
// after gets the new resourceVersion, and is the before of the next commit. If nothing differs, CommitLocked makes no
// request and does not check the resourceVersion. In a Handler within middleware.Status, use middleware.CommitStatus.
//
// Options: those of Commit.
//
// Errors: those of Commit, with client.ErrChanged at once if the object has changed; client.ErrGone and
// client.ErrReplaced. After an error the run must end: nothing was written or, if the response was lost, it is unknown
// whether it was written.
func CommitLocked[T kube.Object](
	ctx context.Context, c *client.Client, before, after T, options ...client.WriteOption,
) (changed bool, err error) {
	version, err := commit(ctx, c, before, after, true, options)
	if version != "" {
		after.SetResourceVersion(version)
	}
	return version != "", err
}

// commit writes the changes of a run. It returns the new resourceVersion, "" if nothing was written, and an error also
// for changes that were left out.
func commit(
	ctx context.Context, c *client.Client, before, after kube.Object, locked bool, options []client.WriteOption,
) (version string, err error) {
	r, err := runOf(c, before, after)
	if r.locked = locked; err == nil && !r.changes.empty() {
		version, err = r.commit(ctx, c, after, options)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("commit the status: %w", err)
	case r.invalid != nil:
		return version, fmt.Errorf("commit the status: %s: %w", kube.KeyOf(after), r.invalid)
	}
	return version, nil
}

// run contains the changes of a run to a status.
type run struct {
	changes changeSet
	// from is the status in before.
	from map[string]any
	// seen is the last known status, for which the patch is made.
	seen map[string]any
	// exact is true if seen is the complete status in the cluster. A Go type lacks unknown fields and shows zeros for
	// missing ones; a state that was taken over contains the run's changes.
	exact bool
	// tookOver is true if the run has taken over a later state of the object, with the resourceVersion version: the
	// changes may have come with it.
	tookOver bool
	version  string
	// generation is the generation of before; 0 for kinds without one.
	generation int64
	// computed is the JSON patch for the state seen; nil: not computed.
	computed *jsonPatch
	// locked is true if only the last known state may be changed.
	locked bool
	// invalid names changes of conditions that are left out, because the API server would reject the whole status.
	invalid error
}

// runOf computes the changes of a run. changes is empty if the status has not changed.
func runOf(c *client.Client, before, after kube.Object) (run, error) {
	if err := check(c, before, after); err != nil {
		return run{}, err
	}
	if sameStatus(before, after) {
		return run{}, nil
	}
	from, err := contentOf(before)
	to, toErr := contentOf(after)
	if err := cmp.Or(err, toErr); err != nil {
		return run{}, fmt.Errorf("%s: %w", kube.KeyOf(after), err)
	}
	invalid := correctConditions(after, from, to)
	r := run{
		invalid: invalid, from: from, seen: from, version: after.GetResourceVersion(),
		tookOver:   after.GetResourceVersion() != before.GetResourceVersion(),
		generation: before.GetGeneration(),
	}
	if r.tookOver {
		r.seen = to
	} else {
		_, r.exact = after.(runtime.Unstructured)
	}
	if r.changes, err = changesOf(from, to); err != nil {
		return run{}, fmt.Errorf("%s: %w", kube.KeyOf(after), err)
	}
	return r, nil
}

// commit writes the changes of a run to an object with the last known state base. It returns the new resourceVersion;
// "" if nothing was left to write.
//
// If all parents of the changed fields exist, it sends a JSON patch of these fields and conditions. The patch tests the
// uid, and for each condition its position, status and observedGeneration, so other writes to the object do not matter.
// Otherwise (the first status, a new condition, a run that wrote to the object itself) the patch requires the
// resourceVersion of after. If it must write the whole list (a condition changes together with an object in the status
// that does not exist yet), commit reads the list first.
func (r *run) commit(
	ctx context.Context, c *client.Client, base kube.Object, given []client.WriteOption,
) (version string, err error) {
	if len(given) > 0 { // Patch has more options
		_, _, err := client.EditMetadata(ctx, c, base, func(_, _ map[string]string) {}, given...)
		if err != nil {
			return "", err
		}
	}
	options := append([]client.WriteOption{client.Subresource("status")}, given...)
	var last error
	isLive := false // commit has read base from the API server
	for attempt := range maxAttempts {
		if attempt > 0 || !r.canPatch() {
			live, err := readAll(ctx, c, base, r.locked)
			if err != nil {
				return "", err
			}
			if attempt > 0 && isLive && patchtest.Failed(last) &&
				live.GetResourceVersion() == base.GetResourceVersion() {
				return "", last // the tests of the patch hold, so it was rejected for another reason
			}
			content, err := contentOf(live)
			if err != nil {
				return "", fmt.Errorf("%s: %w", kube.KeyOf(live), err)
			}
			if err := r.rebase(content, live.GetResourceVersion()); err != nil {
				return "", patchtest.Changed(ctx, c, base, err)
			}
			if r.changes.empty() {
				return "", nil // another client has written the same
			}
			base, isLive = live, true
		}
		patch, err := r.patch(base)
		if err != nil {
			return "", err
		}
		patched, err := client.Patch(ctx, c, base, patch, options...)
		switch {
		case err == nil:
			return patched.GetResourceVersion(), nil
		case patchtest.Failed(err), apierrors.IsConflict(err) && !r.locked:
			last = err
		case errors.Is(err, kube.ErrNotServed):
			return "", noSubresource(ctx, c, base, err)
		default:
			return "", err
		}
	}
	return "",
		patchtest.Changed(ctx, c, base, fmt.Errorf("another client wrote first, %d times: %w", maxAttempts, last))
}

// readAll reads the live object with all its fields, including those that its Go type does not have. With unchanged,
// its resourceVersion must be that of obj.
func readAll(
	ctx context.Context, c *client.Client, obj kube.Object, unchanged bool,
) (*unstructured.Unstructured, error) {
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
	var options []client.ReadOption
	if unchanged {
		options = append(options, client.IfUnchanged())
	}
	return client.GetLive(ctx, c, whole, options...)
}

// rebase reduces the changes of the run to those that the live status, of this version, does not have, and removes
// those for an older generation than that of the live status.
func (r *run) rebase(content map[string]any, version string) error {
	if own := generationIn(r.changes.fields); own > 0 && generationIn(content) > max(own, generationIn(r.from)) {
		r.changes.fields = difference.Without(r.changes.fields, []string{observedField})
	}
	unclear := r.tookOver && version != r.version // otherwise nothing has changed since the take-over
	if unclear {
		if field := contested(r.changes.fields, r.from, content, "status"); field != "" {
			return fmt.Errorf("another client has changed %s too, and the order is not known", field)
		}
	}
	list, _ := conditionList(content)
	var left []conditionChange
	for _, change := range r.changes.conditions {
		current := find(list, change.conditionType)
		if reflect.DeepEqual(current, change.appliedTo(current)) || change.isOutdated(current, r.generation) {
			continue
		}
		if unclear && !contains(current, change.from) {
			return fmt.Errorf("another client has changed the condition %s too, and the order is not known",
				change.conditionType)
		}
		left = append(left, change)
	}
	r.changes.conditions, r.seen, r.exact, r.computed = left, content, true, nil
	return nil
}

// noSubresource determines whether the kind or only its status is not served.
func noSubresource(ctx context.Context, c *client.Client, obj kube.Object, err error) error {
	kind, kindErr := c.Cluster().KindOf(obj)
	if kindErr != nil {
		return err
	}
	if _, servedErr := c.Cluster().Resource(ctx, kind); servedErr != nil {
		return err
	}
	return fmt.Errorf("%s %s: the kind has no status subresource: declare it in the CustomResourceDefinition "+
		"(subresources: {status: {}}), or write the status with client.Patch: %w", kind.Kind, kube.KeyOf(obj), err)
}

// check validates the arguments.
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
		errs = append(errs, fmt.Errorf("%s has no uid or no resourceVersion: use an object that was read from "+
			"the cluster", kube.KeyOf(after)))
	}
	return errors.Join(errs...)
}

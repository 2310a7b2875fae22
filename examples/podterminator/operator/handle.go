package operator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/kube"
)

// handle brings one PodTerminator to its desired state: the due round has been completed.
//
// A round has three steps, so that a crash between any two requests is harmless:
//
//  1. The plan (the victims' names and UIDs) is written to the status, with the time of the round. From now on this
//     round exists, and no other one begins before it has ended and the period has passed.
//  2. The victims are ended, by UID. After a crash this step is repeated for the same Pods. Pods that have replaced
//     them have other UIDs.
//  3. The result is written to the status, and the plan is removed from it.
//
// If Pods were ended before anything is written, a crash in between would lose the round: the next start would find it
// due, and end as many Pods again.
func (o *Operator) handle(ctx context.Context, cached *v1alpha1.PodTerminator) error {
	if !o.hasWork(cached) {
		return o.untilNextRound(cached)
	}
	// The cache may be older than the last run's writes: it would contain a plan that was carried out, or a completed
	// round as due. A round ends Pods, so the request is necessary.
	pt, err := o.read(ctx, kube.KeyOf(cached))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case pt.DeletionTimestamp != nil:
		return o.finalize(ctx, pt)
	case !o.hasWork(pt):
		return o.untilNextRound(pt)
	}
	selector, err := selectorOf(pt)
	if err != nil {
		return o.rejectSpec(ctx, pt, err)
	}
	// The finalizer comes before the first mark.
	if pt, err = o.ensureFinalizer(ctx, pt); err != nil {
		return err
	}
	if pt.Status.Plan == nil && o.due(pt) {
		if pt, err = o.plan(ctx, pt, selector); err != nil {
			return err
		}
	}
	if pt, err = o.carryOut(ctx, pt, selector); err != nil {
		return err
	}
	return o.untilNextRound(pt)
}

// hasWork reports whether pt needs an action now.
func (o *Operator) hasWork(pt *v1alpha1.PodTerminator) bool {
	return pt.DeletionTimestamp != nil || pt.Status.Plan != nil || o.due(pt) ||
		pt.Status.ObservedGeneration != pt.Generation
}

func (o *Operator) due(pt *v1alpha1.PodTerminator) bool {
	return !time.Now().Before(nextRound(pt))
}

// nextRound uses the current period, not status.nextRun: after a change of the spec, that may be hours away. Missed
// rounds are not repeated.
func nextRound(pt *v1alpha1.PodTerminator) time.Time {
	if pt.Status.LastRun == nil {
		return time.Time{}
	}
	return pt.Status.LastRun.Add(pt.Spec.Period.Duration)
}

func (o *Operator) untilNextRound(pt *v1alpha1.PodTerminator) error {
	return &controller.RequeueError{After: max(time.Until(nextRound(pt)), 0), Reason: "next round"}
}

// selectorOf parses the spec's selector. A selector that selects every Pod is almost always a mistake, so it returns an
// error for it.
func selectorOf(pt *v1alpha1.PodTerminator) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&pt.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.selector: %w", err)
	}
	if selector.Empty() {
		return nil, errors.New("spec.selector selects every Pod: name at least one label")
	}
	return selector, nil
}

// rejectSpec writes the mistake in the spec to the status. A retry is useless until the spec changes.
func (o *Operator) rejectSpec(ctx context.Context, pt *v1alpha1.PodTerminator, mistake error) error {
	status := pt.Status.DeepCopy()
	status.NextRun = nil
	status.Plan = nil
	setReady(pt, status, metav1.ConditionFalse, "InvalidSelector", mistake.Error())
	if _, err := o.writeStatus(ctx, pt, status); err != nil {
		return err
	}
	return controller.Terminal(fmt.Errorf("PodTerminator %s: %w", kube.KeyOf(pt), mistake))
}

// plan does step 1 of a round.
func (o *Operator) plan(
	ctx context.Context, pt *v1alpha1.PodTerminator, selector labels.Selector,
) (*v1alpha1.PodTerminator, error) {
	pods, err := o.count(ctx, pt, selector)
	if err != nil {
		return nil, err
	}
	victims := choose(pods.alive, quota(len(pods.alive), pt.Spec.Percent, pt.Spec.MinAlive), rand.Shuffle)
	status := pt.Status.DeepCopy()
	now := metav1.NowMicro()
	status.LastRun = &now
	status.Plan = &v1alpha1.Plan{DryRun: pt.Spec.DryRun, Victims: victims}
	for _, v := range victims {
		if !slices.Contains(status.Marked, v) {
			status.Marked = append(status.Marked, v)
		}
	}
	return o.writeStatus(ctx, pt, status)
}

// carryOut does steps 2 and 3 of a round. Without a plan it only updates the status for a new spec.
func (o *Operator) carryOut(
	ctx context.Context, pt *v1alpha1.PodTerminator, selector labels.Selector,
) (*v1alpha1.PodTerminator, error) {
	status := pt.Status.DeepCopy()
	if plan := pt.Status.Plan; plan != nil {
		if o.due(pt) {
			// The round was interrupted for longer than a period. The period to the next one starts now.
			now := metav1.NowMicro()
			status.LastRun = &now
		}
		pods, err := o.count(ctx, pt, selector)
		if err != nil {
			return nil, err
		}
		end, gone, spare := classifyVictims(plan.Victims, pods, pt.Spec.MinAlive)
		dryRun := plan.DryRun || pt.Spec.DryRun
		status.LastTerminated, status.WouldTerminate = gone, nil
		if dryRun {
			status.WouldTerminate = end
		}
		if err := o.mark(ctx, pt, end); err != nil {
			return nil, err
		}
		if !dryRun {
			ended, err := o.deletePods(ctx, pt, end)
			if err != nil {
				return nil, err
			}
			status.LastTerminated = append(status.LastTerminated, ended...)
		}
		// Marks of earlier dry runs, and of spared Pods, are stale.
		if err := o.unmark(ctx, pt, subtract(pt.Status.Marked, end)); err != nil {
			return nil, err
		}
		status.Marked = status.WouldTerminate
		status.Plan = nil
		status.Rounds++
		status.TerminatedTotal += int64(len(status.LastTerminated))
		setReady(pt, status, metav1.ConditionTrue, "RoundDone", report(len(pods.alive), len(spare), status, dryRun))
	} else {
		setReady(pt, status, metav1.ConditionTrue, "Waiting", "waiting for the next round")
	}
	next := metav1.NewMicroTime(status.LastRun.Add(pt.Spec.Period.Duration))
	status.NextRun = &next
	return o.writeStatus(ctx, pt, status)
}

func report(alive, spared int, status *v1alpha1.PodTerminatorStatus, dryRun bool) string {
	verb, n := "ended", len(status.LastTerminated)
	if dryRun {
		verb, n = "dry run: would have ended", len(status.WouldTerminate)
	}
	text := fmt.Sprintf("%s %d of %d selected Pods", verb, n, alive)
	if spared > 0 {
		text += fmt.Sprintf(", spared %d", spared)
	}
	return text
}

// subtract returns the elements of all that are not in some.
func subtract(all, some []v1alpha1.PodReference) []v1alpha1.PodReference {
	return slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.PodReference) bool { return slices.Contains(some, p) })
}

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

// handle brings one PodTerminator to its desired state: the round that is due has been
// done.
//
// A round takes three steps, so that a crash between any two requests is harmless:
//
//  1. Its plan, the victims' names and UIDs, is written to the status, together with the
//     time of the round. From now on this round exists, and no other one begins before
//     it has ended and the period has passed.
//  2. The victims are ended, by UID. After a crash this step is done again for the same
//     Pods; those that are gone stay gone, and Pods that came in their place are others.
//  3. What was done is written to the status, and the plan is removed from it.
//
// Were Pods ended first and written down afterwards, a crash in between would be
// forgotten: the next start would find the round due, and end as many again.
func (o *Operator) handle(ctx context.Context, cached *v1alpha1.PodTerminator) error {
	if !o.hasWork(cached) {
		return o.untilNextRound(cached)
	}
	// The cache may be older than what the last run wrote: it would show a plan that has
	// been carried out, or a round that is over as due. What comes ends Pods, so it is
	// worth a request.
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
		return o.refuse(ctx, pt, err)
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

// hasWork says whether anything is to be done for pt now.
func (o *Operator) hasWork(pt *v1alpha1.PodTerminator) bool {
	return pt.DeletionTimestamp != nil || pt.Status.Plan != nil || o.due(pt) || pt.Status.ObservedGeneration != pt.Generation
}

func (o *Operator) due(pt *v1alpha1.PodTerminator) bool {
	return !time.Now().Before(nextRound(pt))
}

// nextRound goes by the period of today, not by status.nextRun: when the spec changes,
// that may be hours away. Rounds that nobody did are not made up for.
func nextRound(pt *v1alpha1.PodTerminator) time.Time {
	if pt.Status.LastRun == nil {
		return time.Time{}
	}
	return pt.Status.LastRun.Add(pt.Spec.Period.Duration)
}

func (o *Operator) untilNextRound(pt *v1alpha1.PodTerminator) error {
	return &controller.RequeueError{After: max(time.Until(nextRound(pt)), 0), Reason: "next round"}
}

// selectorOf reads the spec's selector. One that selects every Pod is far more often a
// mistake than a wish.
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

// refuse says in the status what is wrong with the spec. Trying again would be of no use
// until somebody changes it.
func (o *Operator) refuse(ctx context.Context, pt *v1alpha1.PodTerminator, mistake error) error {
	status := pt.Status.DeepCopy()
	status.NextRun = nil
	status.Plan = nil
	setReady(pt, status, metav1.ConditionFalse, "InvalidSelector", mistake.Error())
	if _, err := o.writeStatus(ctx, pt, status); err != nil {
		return err
	}
	return controller.Terminal(fmt.Errorf("PodTerminator %s: %w", kube.KeyOf(pt), mistake))
}

// plan is step 1 of a round.
func (o *Operator) plan(ctx context.Context, pt *v1alpha1.PodTerminator, selector labels.Selector) (*v1alpha1.PodTerminator, error) {
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

// carryOut is steps 2 and 3 of a round. Without a plan it only brings the status up to
// date with the spec.
func (o *Operator) carryOut(ctx context.Context, pt *v1alpha1.PodTerminator, selector labels.Selector) (*v1alpha1.PodTerminator, error) {
	status := pt.Status.DeepCopy()
	if plan := pt.Status.Plan; plan != nil {
		if o.due(pt) {
			// The round was interrupted for longer than a period. The next one keeps its
			// distance from what is done now.
			now := metav1.NowMicro()
			status.LastRun = &now
		}
		pods, err := o.count(ctx, pt, selector)
		if err != nil {
			return nil, err
		}
		end, gone, spare := fates(plan.Victims, pods, pt.Spec.MinAlive)
		dryRun := plan.DryRun || pt.Spec.DryRun
		status.LastTerminated, status.WouldTerminate = gone, nil
		if dryRun {
			status.WouldTerminate = end
		}
		if err := o.mark(ctx, pt, end); err != nil {
			return nil, err
		}
		if !dryRun {
			ended, err := o.end(ctx, pt, end)
			if err != nil {
				return nil, err
			}
			status.LastTerminated = append(status.LastTerminated, ended...)
		}
		// Marks of earlier dry runs, and of the spared, are out of date.
		if err := o.unmark(ctx, pt, without(pt.Status.Marked, end)); err != nil {
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

// without returns the elements of all that are not in some.
func without(all, some []v1alpha1.PodReference) []v1alpha1.PodReference {
	return slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.PodReference) bool { return slices.Contains(some, p) })
}

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// finishedCondition returns the condition Complete or Failed if it is true.
func finishedCondition(job *batchv1.Job) *batchv1.JobCondition {
	if c := jobCondition(&job.Status, batchv1.JobComplete); c != nil {
		return c
	}
	return jobCondition(&job.Status, batchv1.JobFailed)
}

// jobCondition returns a condition that is true, or nil.
func jobCondition(status *batchv1.JobStatus, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range status.Conditions {
		if c.Type == t && c.Status == corev1.ConditionTrue {
			return &status.Conditions[i]
		}
	}
	return nil
}

func newJobCondition(
	t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string,
) *batchv1.JobCondition {
	now := seconds(time.Now())
	return &batchv1.JobCondition{
		Type: t, Status: status, Reason: reason, Message: message, LastProbeTime: now,
		LastTransitionTime: now,
	}
}

// setCondition adds or replaces a condition, and reports whether it changed. It adds no condition that is false.
func (p *jobPass) setCondition(condition *batchv1.JobCondition) bool {
	conditions := p.job.Status.Conditions
	i := slices.IndexFunc(conditions, func(c batchv1.JobCondition) bool { return c.Type == condition.Type })
	switch {
	case i < 0 && condition.Status == corev1.ConditionFalse:
		return false
	case i < 0:
		p.job.Status.Conditions = append(conditions, *condition)
		return true
	case conditions[i].Status == condition.Status && conditions[i].Reason == condition.Reason &&
		conditions[i].Message == condition.Message:
		return false
	}
	conditions[i] = *condition
	return true
}

func (r *requester) removeTrackingFinalizer(ctx context.Context, k *apiserver.Kind, pod *corev1.Pod) error {
	if !tracked(pod) {
		return nil
	}
	patch := map[string]any{
		"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}},
	}
	return r.patch(ctx, k, pod, types.StrategicMergePatchType, patch)
}

// track counts each Pod that ended exactly once: it writes the Pod's uid into the status, removes its finalizer, and
// then adds it to the numbers in the status.
func (p *jobPass) track(ctx context.Context) error {
	p.countUntracked(p.pods)
	ended := p.recordEnded()
	p.recordIndexes()
	p.recordTarget()
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	status := &p.job.Status // of the response
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	p.mu.Lock()
	p.backoffs[p.job.UID] = p.backoff
	p.mu.Unlock()
	for _, pod := range ended {
		if err := ignoreNotFound(p.requests.removeTrackingFinalizer(ctx, p.podKind(), pod)); err != nil {
			return fmt.Errorf("remove the finalizer of Pod %s: %w", pod.Name, err)
		}
	}
	remaining := slices.DeleteFunc(slices.Clone(p.pods), func(pod *corev1.Pod) bool {
		return slices.Contains(ended, pod)
	})
	p.countUntracked(remaining)
	uncounted := status.UncountedTerminatedPods
	if c := p.finished; c != nil && len(uncounted.Succeeded)+len(uncounted.Failed) == 0 && p.terminating == 0 {
		p.setCondition(c)
		if c.Type == batchv1.JobComplete {
			status.CompletionTime = &c.LastTransitionTime
		}
	}
	return p.writeStatus(ctx)
}

// recordEnded writes the uids of Pods that ended into the status, and returns the Pods whose finalizer is not needed
// any more.
func (p *jobPass) recordEnded() (ended []*corev1.Pod) {
	uncounted := p.job.Status.UncountedTerminatedPods
	failedTarget := p.finished != nil && (p.finished.Type == batchv1.JobFailureTarget ||
		p.finished.Type == batchv1.JobFailed)
	for _, pod := range p.pods {
		failed, succeeded := p.podFailed(pod), pod.Status.Phase == corev1.PodSucceeded
		goesOn := p.job.DeletionTimestamp == nil && p.finished == nil && !succeeded
		if !tracked(pod) || goesOn && !failed {
			continue
		}
		index := completionIndex(pod)
		if goesOn && p.awaited[index] == pod {
			continue
		}
		ended = append(ended, pod)
		switch {
		case succeeded && !slices.Contains(uncounted.Failed, pod.UID):
			if !p.indexed() && !slices.Contains(uncounted.Succeeded, pod.UID) {
				uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
			}
		case (failed || failedTarget) && !slices.Contains(uncounted.Failed, pod.UID) &&
			(!p.indexed() || p.validIndex(index)):
			if counts, _ := p.matchFailure(pod); counts {
				uncounted.Failed = append(uncounted.Failed, pod.UID)
			}
		}
	}
	return ended
}

// recordIndexes writes the completed and failed indexes into the status.
func (p *jobPass) recordIndexes() {
	if !p.indexed() {
		return
	}
	status := &p.job.Status
	status.Succeeded, status.CompletedIndexes = int32(len(p.indexes)), formatIndexes(p.indexes)
	status.FailedIndexes = nil
	if p.limitsIndexes() {
		failed := formatIndexes(p.failedIndexes)
		status.FailedIndexes = &failed
	}
}

// recordTarget adds the condition that announces how the Job will end, and sets the condition with which it ends.
func (p *jobPass) recordTarget() {
	status := &p.job.Status
	if c := p.finished; c != nil && c.Type == batchv1.JobFailureTarget {
		status.Conditions = append(status.Conditions, *c)
		p.finished = newJobCondition(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message)
	}
	if c := p.finished; c != nil && c.Type == batchv1.JobSuccessCriteriaMet {
		if jobCondition(status, batchv1.JobSuccessCriteriaMet) == nil {
			status.Conditions = append(status.Conditions, *c)
		}
		p.finished = newJobCondition(batchv1.JobComplete, corev1.ConditionTrue, c.Reason, c.Message)
	}
}

// countUntracked counts Pods whose uids are in the status, and which have no finalizer any more.
func (p *jobPass) countUntracked(pods []*corev1.Pod) {
	counted := func(uids []types.UID, total *int32) []types.UID {
		var remaining []types.UID
		for _, uid := range uids {
			if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == uid && tracked(pod) }) {
				remaining = append(remaining, uid)
			} else {
				*total++
			}
		}
		return remaining
	}
	status := &p.job.Status
	status.UncountedTerminatedPods.Succeeded = counted(status.UncountedTerminatedPods.Succeeded, &status.Succeeded)
	status.UncountedTerminatedPods.Failed = counted(status.UncountedTerminatedPods.Failed, &status.Failed)
}

// writeStatus writes the status if it has changed.
func (p *jobPass) writeStatus(ctx context.Context) error {
	if equality.Semantic.DeepEqual(p.job.Status, p.stored) {
		return nil
	}
	if err := p.requests.updateAndRead(ctx, p.kind, p.job, "status"); err != nil {
		return err
	}
	p.stored = *p.job.Status.DeepCopy()
	return nil
}

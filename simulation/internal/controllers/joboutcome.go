package controllers

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// podFailed reports whether a Pod counts as failed. A Pod that is being deleted does, unless only failed Pods are
// replaced.
func (p *jobPass) podFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed ||
		!p.replacesOnlyFailed() && pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

func (p *jobPass) replacesOnlyFailed() bool {
	policy := p.job.Spec.PodReplacementPolicy
	return policy != nil && *policy == batchv1.Failed
}

// count counts the Pods that ended.
func (p *jobPass) count() {
	uncounted := p.job.Status.UncountedTerminatedPods
	p.succeeded = p.job.Status.Succeeded + int32(len(uncounted.Succeeded))
	p.failed = p.job.Status.Failed + int32(len(uncounted.Failed))
	p.backoff = p.backoffs[p.job.UID]
	var succeeded, failed []time.Time
	for _, pod := range p.pods {
		if !tracked(pod) || p.indexed() && !p.validIndex(completionIndex(pod)) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded && !slices.Contains(uncounted.Succeeded, pod.UID):
			succeeded = append(succeeded, endOf(pod))
		case p.podFailed(pod) && !slices.Contains(uncounted.Failed, pod.UID):
			failed = append(failed, endOf(pod))
			if counts, _ := p.matchFailure(pod); counts {
				p.failed++
			}
		}
	}
	p.succeeded += int32(len(succeeded))
	if len(succeeded) > 0 {
		latest := slices.MaxFunc(succeeded, time.Time.Compare)
		p.backoff = podBackoff{}
		failed = slices.DeleteFunc(failed, func(t time.Time) bool { return !t.After(latest) })
	}
	if len(failed) > 0 {
		p.backoff.failures += len(failed)
		p.backoff.last = slices.MaxFunc(failed, time.Time.Compare)
	}
	if p.indexed() {
		p.countIndexes()
	}
}

// endOf returns when a Pod ended.
func endOf(pod *corev1.Pod) time.Time {
	var latest time.Time
	ended := len(pod.Status.ContainerStatuses) > 0
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.FinishedAt.IsZero() {
			ended = false
		} else if c.State.Terminated.FinishedAt.After(latest) {
			latest = c.State.Terminated.FinishedAt.Time
		}
	}
	switch c := readyCondition(pod); {
	case ended:
		return latest
	case c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero():
		return c.LastTransitionTime.Time
	case pod.DeletionTimestamp != nil:
		var grace int64
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
	}
	return pod.CreationTimestamp.Time
}

// outcome returns the condition with which the Job is about to end, or nil.
func (p *jobPass) outcome() *batchv1.JobCondition {
	job := p.job
	if c := jobCondition(&job.Status, batchv1.JobSuccessCriteriaMet); c != nil {
		return c
	}
	if c := jobCondition(&job.Status, batchv1.JobFailureTarget); c != nil {
		return newJobCondition(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message)
	}
	for _, pod := range p.pods {
		if _, rule := p.matchFailure(pod); p.podFailed(pod) && rule.action == batchv1.PodFailurePolicyActionFailJob {
			return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonPodFailurePolicy,
				rule.message)
		}
	}
	if p.failed > *job.Spec.BackoffLimit || p.tooManyRestarts() {
		return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonBackoffLimitExceeded,
			"Job has reached the specified backoff limit")
	}
	if job.Spec.ActiveDeadlineSeconds != nil && job.Status.StartTime != nil && !p.suspended() {
		deadline := job.Status.StartTime.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second)
		if !deadline.After(time.Now()) {
			return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonDeadlineExceeded,
				"Job was active longer than specified deadline")
		}
		p.nextSync = deadline
	}
	if p.indexed() {
		return p.indexedOutcome()
	}
	return nil
}

// tooManyRestarts reports whether the containers of a Job whose Pods restart them have failed too often.
func (p *jobPass) tooManyRestarts() bool {
	if p.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, pod := range p.pods {
		if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending {
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				restarts += c.RestartCount
			}
		}
	}
	return restarts >= max(1, *p.job.Spec.BackoffLimit)
}

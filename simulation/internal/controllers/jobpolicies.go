package controllers

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// failureRule is the rule of a podFailurePolicy that matches a failed Pod. It is empty if none does.
type failureRule struct {
	action  batchv1.PodFailurePolicyAction
	message string // of FailJob
}

// matchFailure returns the rule that matches a failed Pod, and whether the failure counts.
func (p *jobPass) matchFailure(pod *corev1.Pod) (counts bool, matched failureRule) {
	if p.job.Spec.PodFailurePolicy == nil {
		return true, failureRule{}
	}
	for i, rule := range p.job.Spec.PodFailurePolicy.Rules {
		var reason string
		if rule.OnExitCodes != nil {
			if c := failedContainer(&pod.Status, rule.OnExitCodes); c != nil {
				reason = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", c.Name, pod.Namespace,
					pod.Name, c.State.Terminated.ExitCode)
			}
		} else if c := matchingCondition(&pod.Status, rule.OnPodConditions); c != nil {
			reason = fmt.Sprintf("Pod %s/%s has condition %s", pod.Namespace, pod.Name, c.Type)
		}
		if reason != "" {
			message := fmt.Sprintf("%s matching %s rule at index %d", reason, rule.Action, i)
			return rule.Action != batchv1.PodFailurePolicyActionIgnore, failureRule{rule.Action, message}
		}
	}
	return true, failureRule{}
}

// failedContainer returns the first container that has failed with one of the required exit codes, or nil.
func failedContainer(
	status *corev1.PodStatus, required *batchv1.PodFailurePolicyOnExitCodesRequirement,
) *corev1.ContainerStatus {
	all := slices.Concat(status.ContainerStatuses, status.InitContainerStatuses)
	i := slices.IndexFunc(all, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 &&
			(required.ContainerName == nil || *required.ContainerName == c.Name) &&
			slices.Contains(required.Values,
				c.State.Terminated.ExitCode) == (required.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn)
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// matchingCondition returns the first condition that matches one of the patterns, or nil.
func matchingCondition(
	status *corev1.PodStatus, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern,
) *corev1.PodCondition {
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return slices.ContainsFunc(patterns, func(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return p.Type == c.Type && p.Status == c.Status
		})
	})
	if i < 0 {
		return nil
	}
	return &status.Conditions[i]
}

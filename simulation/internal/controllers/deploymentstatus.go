package controllers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func deploymentCondition(
	status *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType,
) *appsv1.DeploymentCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == t {
			return &status.Conditions[i]
		}
	}
	return nil
}

// setCondition replaces a condition if its status or reason is another one.
func setCondition(status *appsv1.DeploymentStatus, condition appsv1.DeploymentCondition) {
	old := deploymentCondition(status, condition.Type)
	if old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
		return
	}
	if condition.LastUpdateTime.IsZero() {
		condition.LastUpdateTime = seconds(time.Now())
	}
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = condition.LastUpdateTime
	}
	if old != nil && old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	removeCondition(status, condition.Type)
	status.Conditions = append(status.Conditions, condition)
}

func removeCondition(status *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == t
	})
}

func progressing(status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: status, Reason: reason,
		Message: message,
	}
}

// writeStatus updates the status, and annotations of the Deployment.
func (r *rollout) writeStatus(ctx context.Context, status *appsv1.DeploymentStatus) error {
	if equality.Semantic.DeepEqual(*status, r.deployment.Status) {
		return nil
	}
	r.deployment.Status = *status
	return r.requests.updateAndRead(ctx, r.kind, r.deployment, "status")
}

// reportPaused reports in the condition Progressing that the Deployment is paused or resumed.
func (r *rollout) reportPaused(ctx context.Context) error {
	d := r.deployment
	condition := deploymentCondition(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || condition != nil && condition.Reason == reasonTimedOut {
		return nil
	}
	status := d.Status.DeepCopy()
	paused := condition != nil && condition.Reason == reasonPaused
	switch {
	case d.Spec.Paused && !paused:
		setCondition(status, progressing(corev1.ConditionUnknown, reasonPaused, "Deployment is paused"))
	case !d.Spec.Paused && paused:
		setCondition(status, progressing(corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed"))
	}
	return r.writeStatus(ctx, status)
}

// status returns the counts and the condition Available.
func (r *rollout) status() *appsv1.DeploymentStatus {
	d, all := r.deployment, r.all()
	status := d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	status.Replicas = sum(all, actual)
	status.UpdatedReplicas = 0
	if r.current != nil {
		status.UpdatedReplicas = actual(r.current)
	}
	status.ReadyReplicas = sum(all, func(set *appsv1.ReplicaSet) int32 { return set.Status.ReadyReplicas })
	status.AvailableReplicas = sum(all, available)
	status.UnavailableReplicas = max(0, sum(all, desired)-status.AvailableReplicas)
	terminating := int32(0)
	status.TerminatingReplicas = &terminating
	for _, set := range all {
		switch {
		case set.Status.TerminatingReplicas != nil:
			terminating += *set.Status.TerminatingReplicas
		case set.Status.ObservedGeneration != 0:
			status.TerminatingReplicas = nil
		}
	}
	_, unavailable := limits(d)
	condition := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse,
		Reason: "MinimumReplicasUnavailable", Message: "Deployment does not have minimum availability.",
	}
	if status.AvailableReplicas >= *d.Spec.Replicas-unavailable {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability."
	}
	setCondition(status, condition)
	return status
}

// complete reports whether all Pods of a Deployment are new and available.
func complete(d *appsv1.Deployment, status *appsv1.DeploymentStatus) bool {
	n := *d.Spec.Replicas
	return status.UpdatedReplicas == n && status.Replicas == n && status.AvailableReplicas == n &&
		status.ObservedGeneration >= d.Generation
}

// writeProgress writes the status with the conditions Progressing and ReplicaFailure.
func (r *rollout) writeProgress(ctx context.Context) error {
	d := r.deployment
	status, now := r.status(), time.Now()
	if !hasDeadline(d) {
		removeCondition(status, appsv1.DeploymentProgressing)
	}
	condition := deploymentCondition(&d.Status, appsv1.DeploymentProgressing)
	done := status.Replicas == status.UpdatedReplicas && condition != nil && condition.Reason == reasonAvailable
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if r.current != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.current.Name)
	}
	deadline := func() time.Time {
		return condition.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
	}
	if hasDeadline(d) && !done {
		oldReplicas := func(s *appsv1.DeploymentStatus) int32 { return s.Replicas - s.UpdatedReplicas }
		switch before := &d.Status; {
		case complete(d, status):
			setCondition(status,
				progressing(corev1.ConditionTrue, reasonAvailable, subject+" has successfully progressed."))
		case status.UpdatedReplicas > before.UpdatedReplicas || oldReplicas(status) < oldReplicas(before) ||
			status.ReadyReplicas > before.ReadyReplicas || status.AvailableReplicas > before.AvailableReplicas:
			updated := progressing(corev1.ConditionTrue, "ReplicaSetUpdated", subject+" is progressing.")
			if condition != nil && condition.Status == corev1.ConditionTrue {
				updated.LastTransitionTime = condition.LastTransitionTime
			}
			removeCondition(status, appsv1.DeploymentProgressing)
			setCondition(status, updated)
		case condition != nil && (condition.Reason == reasonTimedOut || condition.Reason != reasonAvailable &&
			deadline().Before(now)):
			setCondition(status,
				progressing(corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing."))
		}
	}
	removeCondition(status, appsv1.DeploymentReplicaFailure)
	if failure := r.failure(); failure != nil {
		if old := deploymentCondition(&d.Status, appsv1.DeploymentReplicaFailure); old != nil &&
			old.Reason == failure.Reason {
			failure = old
		}
		setCondition(status, *failure)
	}
	// After an update, unavailable Pods do not time out: the time of the next pass would be in the past.
	waits := condition != nil && condition.Reason != reasonTimedOut && condition.Reason != reasonAvailable
	if equality.Semantic.DeepEqual(*status, d.Status) && hasDeadline(d) && waits && !complete(d, status) {
		r.nextSync = deadline().Add(time.Second)
	}
	return r.writeStatus(ctx, status)
}

// failure returns the first failure of a ReplicaSet to create or delete Pods: that of the current one, if it has one.
func (r *rollout) failure() *appsv1.DeploymentCondition {
	all := slices.Clone(r.old)
	if r.current != nil {
		all = append([]*appsv1.ReplicaSet{r.current}, all...)
	}
	for _, set := range all {
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
				}
			}
		}
	}
	return nil
}

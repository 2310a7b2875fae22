package operator

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
)

// updateStatus says how far app is, in one write, if that has changed. Deployment is nil when nothing is known of it;
// err is what the run has failed with.
func (r *Reconciler) updateStatus(ctx context.Context, app *v1.WebApp, deployment *appsv1.Deployment, err error) error {
	before := app.Status.DeepCopy()
	app.Status.ObservedGeneration = app.Generation
	if deployment != nil {
		app.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	}
	setConditions(app, deployment, err)
	if equality.Semantic.DeepEqual(before, &app.Status) {
		return nil
	}
	if err := client.IgnoreNotFound(r.Status().Update(ctx, app)); err != nil {
		return fmt.Errorf("update the status: %w", err)
	}
	return nil
}

func setConditions(app *v1.WebApp, deployment *appsv1.Deployment, err error) {
	set := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		apimeta.SetStatusCondition(&app.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: app.Generation,
		})
	}
	ready, stalled, reason, message := progress(app, deployment, err)
	set(v1.ConditionReady, ready, reason, message)
	set(v1.ConditionReconciling, !ready && !stalled, reason, message)
	set(v1.ConditionStalled, stalled, reason, message)
	if app.Spec.Suspend {
		set(v1.ConditionSuspended, true, "Suspended", "the Deployment is scaled to 0, because spec.suspend is true")
	} else {
		set(v1.ConditionSuspended, false, "NotSuspended", "")
	}
}

// progress says how far app is: ready, stalled, or neither, which is on the way.
func progress(app *v1.WebApp, deployment *appsv1.Deployment, err error) (ready, stalled bool, reason, message string) {
	var owned *controllerutil.AlreadyOwnedError
	switch {
	case errors.Is(err, errForeign) || errors.As(err, &owned):
		return false, true, "NameTaken", err.Error()
	case apierrors.IsInvalid(err):
		return false, true, "Invalid", err.Error()
	case err != nil:
		return false, false, "Failed", err.Error()
	}
	want, status := *deployment.Spec.Replicas, deployment.Status
	switch {
	case status.ObservedGeneration < deployment.Generation:
		return false, false, "RollingOut", "the Deployment's controller has not seen its latest change"
	case deadlineExceeded(status):
		return false, true, "ProgressDeadlineExceeded", "the Deployment makes no progress"
	case status.UpdatedReplicas != want || status.Replicas != want || status.AvailableReplicas != want:
		return false, false, "RollingOut", fmt.Sprintf("%d Pods of %d are updated, %d are available, %d exist",
			status.UpdatedReplicas, want, status.AvailableReplicas, status.Replicas)
	case app.Spec.Suspend:
		return true, false, "Suspended", "nothing runs, as the spec asks"
	default:
		return true, false, "Available", fmt.Sprintf("%d Pods are available", want)
	}
}

func deadlineExceeded(status appsv1.DeploymentStatus) bool {
	for _, condition := range status.Conditions {
		if condition.Type == appsv1.DeploymentProgressing {
			return condition.Status == corev1.ConditionFalse && condition.Reason == "ProgressDeadlineExceeded"
		}
	}
	return false
}

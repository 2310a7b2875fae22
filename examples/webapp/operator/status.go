package operator

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/status"
)

// statusOptions configure the status that is written at the end of each run: the handler's conditions and, after a
// failure, the reason.
func statusOptions() middleware.StatusOptions[*v1.WebApp] {
	return middleware.StatusOptions[*v1.WebApp]{
		SetObservedGeneration: func(app *v1.WebApp, generation int64) { app.Status.ObservedGeneration = generation },
		OnError: middleware.FailureConditions(func(app *v1.WebApp) *[]metav1.Condition {
			return &app.Status.Conditions
		}),
	}
}

// region setStatus

// setStatus sets the status of app from report.
func setStatus(app *v1.WebApp, report owned.Report) {
	conditions := &app.Status.Conditions
	app.Status.ObservedGeneration = app.Generation // the generation of the conditions
	if app.Spec.Suspend {
		status.Set(conditions, status.True(v1.ConditionSuspended, app.Generation, "Suspended",
			"the Deployment is scaled to 0 because spec.suspend is true"))
	} else {
		status.Set(conditions, status.False(v1.ConditionSuspended, app.Generation, "NotSuspended", ""))
	}
	if deployment, ok := owned.Object[*appsv1.Deployment](report, kube.KeyOf(app)); ok {
		app.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	}
	status.Summarize(conditions, app.Generation, report.States()...)
}

// endregion

package operator

import (
	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/status"
)

// setStatus sets what the status of app has besides the conditions of its children.
func setStatus(app *v1.WebApp, report owned.Report) {
	conditions := &app.Status.Conditions
	if app.Spec.Suspend {
		status.Set(conditions, status.True(v1.ConditionSuspended, app.Generation, "Suspended",
			"the Deployment is scaled to 0 because spec.suspend is true"))
	} else {
		status.Set(conditions, status.False(v1.ConditionSuspended, app.Generation, "NotSuspended", ""))
	}
	if deployment, ok := owned.Object[*appsv1.Deployment](report, kube.KeyOf(app)); ok {
		app.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	}
}

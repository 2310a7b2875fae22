// Package operator maintains the children of each WebApp (a Deployment, a Service and a ConfigMap in its namespace),
// and a record of its host outside the cluster.
package operator

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/status"
)

// Name is the name of the operator's controller, lease, field owner and event source.
const Name = "webapp-operator"

// operator has the dependencies of the handler.
type operator struct{ records Records }

// Config returns the config of the operator, with the records outside the cluster.
func Config(cluster *kube.Cluster, records Records) evenkeel.Config[*v1.WebApp] {
	o := &operator{records}
	return evenkeel.Config[*v1.WebApp]{
		Name:    Name,
		Cluster: cluster,
		Handle:  o.handle,
		Owns: []watched.Kind{
			watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service](), watched.Of[*corev1.ConfigMap](),
		},
		Status: func(app *v1.WebApp) (*[]metav1.Condition, *int64) {
			return &app.Status.Conditions, &app.Status.ObservedGeneration
		},
		Finalizer: v1.Finalizer,
		Teardown:  o.deleteRecord,
	}
}

// handle brings the cluster and the record outside of it to app's desired state.
func (o *operator) handle(ctx context.Context, app *v1.WebApp, run *evenkeel.Run) error {
	report, err := run.Apply(ctx, configMap(app), deployment(app), service(app))
	if applied, ok := owned.Object[*appsv1.Deployment](report, kube.KeyOf(app)); ok {
		app.Status.ReadyReplicas = applied.Status.ReadyReplicas
	}
	setSuspended(app)
	if err != nil {
		return err
	}
	return o.record(ctx, app, run) // before the status can be Ready
}

func setSuspended(app *v1.WebApp) {
	condition := metav1.Condition{
		Type: v1.ConditionSuspended, Status: metav1.ConditionFalse, Reason: "NotSuspended",
		ObservedGeneration: app.Generation,
	}
	if app.Spec.Suspend {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Suspended"
		condition.Message = "the Deployment is scaled to 0 because spec.suspend is true"
	}
	status.Set(&app.Status.Conditions, condition)
}

// record creates, moves or deletes the record for spec.host. The status contains the name of a record before it is
// created, so that neither a crash nor a change of the spec can leave an unknown record.
func (o *operator) record(ctx context.Context, app *v1.WebApp, run *evenkeel.Run) error {
	if app.Status.Host != app.Spec.Host {
		if err := o.deleteRecord(ctx, app, run); err != nil {
			return err
		}
		app.Status.Host = app.Spec.Host
		// This fails for a stale copy, which could lose the name of an existing record.
		if err := run.CommitStatus(ctx); err != nil {
			return fmt.Errorf("write the record's name %q to the status: %w", app.Spec.Host, err)
		}
	}
	if app.Spec.Host == "" {
		return nil
	}
	return o.records.Ensure(ctx, Record{
		Host: app.Spec.Host, Target: app.Name + "." + app.Namespace + ".svc",
		Owner: string(app.UID),
	})
}

// deleteRecord deletes the record that may exist, if app still owns it.
func (o *operator) deleteRecord(ctx context.Context, app *v1.WebApp, _ *evenkeel.Run) error {
	if app.Status.Host == "" {
		return nil
	}
	return o.records.Delete(ctx, Record{Host: app.Status.Host, Owner: string(app.UID)})
}

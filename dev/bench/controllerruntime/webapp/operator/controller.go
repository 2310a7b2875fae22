// Package operator is the operator of examples/webapp written on controller-runtime.
package operator

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
)

// Reconciler brings the cluster, and the records outside it, to what WebApps ask for.
//
// +kubebuilder:rbac:groups=webapp.example.com,resources=webapps,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=webapp.example.com,resources=webapps/status,verbs=update
// +kubebuilder:rbac:groups=webapp.example.com,resources=webapps/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;update
type Reconciler struct {
	client.Client
	Records Records
}

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&v1.WebApp{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	app := &v1.WebApp{}
	if err := r.Get(ctx, request.NamespacedName, app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !app.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, app)
	}
	// Before anything else: the answer to an Update replaces what app has in memory, its status as well.
	if controllerutil.AddFinalizer(app, v1.Finalizer) {
		if err := r.Update(ctx, app); err != nil {
			return ctrl.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	deployment, err := r.children(ctx, app)
	if err == nil {
		err = r.record(ctx, app)
	}
	return ctrl.Result{}, errors.Join(err, r.updateStatus(ctx, app, deployment, err))
}

// record makes the record outside the cluster follow spec.host. Before one is made its name is in the status, so that
// neither a crash nor a change of the spec makes it forgotten. Update, unlike Patch, refuses to do that from an old
// copy.
func (r *Reconciler) record(ctx context.Context, app *v1.WebApp) error {
	if old := app.Status.Host; old != app.Spec.Host {
		if err := r.deleteRecord(ctx, app, old); err != nil {
			return err
		}
		app.Status.Host = app.Spec.Host
		if err := r.Status().Update(ctx, app); err != nil {
			return fmt.Errorf("note the record of %q: %w", app.Spec.Host, err)
		}
	}
	if app.Spec.Host == "" {
		return nil
	}
	record := Record{Host: app.Spec.Host, Target: app.Name + "." + app.Namespace + ".svc", Owner: string(app.UID)}
	if err := r.Records.Ensure(ctx, record); err != nil {
		return fmt.Errorf("ensure the record of %q: %w", app.Spec.Host, err)
	}
	return nil
}

func (r *Reconciler) deleteRecord(ctx context.Context, app *v1.WebApp, host string) error {
	if host == "" {
		return nil
	}
	if err := r.Records.Delete(ctx, Record{Host: host, Owner: string(app.UID)}); err != nil {
		return fmt.Errorf("delete the record of %q: %w", host, err)
	}
	return nil
}

// finalize removes the record outside of the cluster. The garbage collector removes the children.
func (r *Reconciler) finalize(ctx context.Context, app *v1.WebApp) error {
	if !controllerutil.ContainsFinalizer(app, v1.Finalizer) {
		return nil
	}
	if err := r.deleteRecord(ctx, app, app.Status.Host); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(app, v1.Finalizer)
	if err := client.IgnoreNotFound(r.Update(ctx, app)); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// Package operator maintains the children of each WebApp (a Deployment, a Service and a ConfigMap in its namespace),
// and a record of its host outside the cluster.
package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// Name is the name of the operator's controller, lease, field owner and event source.
const Name = "webapp-operator"

// Config configures the operator.
type Config struct {
	// Records is the system outside the cluster. Required.
	Records Records
	// Namespaces are the namespaces of the WebApps that it handles. Default: all.
	Namespaces []string
	// LeaderElector, Metrics, Events, ResyncInterval and ConsistencyTimeout are passed to the controller.
	// Optional. Events needs more permissions than config/role.yaml grants (see package event).
	LeaderElector                      controller.LeaderElector
	Metrics                            controller.Recorder
	Events                             controller.EventRecorder
	ResyncInterval, ConsistencyTimeout time.Duration
}

// operator has the dependencies of the handler.
type operator struct {
	children *owned.Set
	records  Records
}

// The permissions of the operator. Patch of webapps is for the finalizer. Update of webapps/finalizers is for owner
// references that block the owner's deletion, where OwnerReferencesPermissionEnforcement is on. Delete is for children
// that a later version of the operator does not have.
//
// +kubebuilder:rbac:groups=webapp.example.com,resources=webapps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=webapp.example.com,resources=webapps/status,verbs=patch
// +kubebuilder:rbac:groups=webapp.example.com,resources=webapps/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;patch;delete

// New returns the operator's controller.
func New(cluster *kube.Cluster, config Config) (*controller.Controller[*v1.WebApp], error) {
	if config.Records == nil {
		return nil, errors.New("new webapp operator: Config.Records is required")
	}
	// region children
	// The list of kinds defines informers of the objects with the set's label (not of every Deployment in the cluster),
	// a client that reads from them, the set, and the sources.
	children, err := watched.New(watched.Config{
		Client: client.Config{Cluster: cluster, FieldOwner: Name},
		Kinds: []watched.Kind{
			watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service](),
			watched.Of[*corev1.ConfigMap](),
		},
		Namespaces: config.Namespaces,
	})
	// endregion
	if err != nil {
		return nil, err
	}
	op := &operator{children: children.Set, records: config.Records}
	record, err := finalizer.New(finalizer.Config[*v1.WebApp]{
		Client: children.Client, Name: v1.Finalizer,
		Steps: []finalizer.Step[*v1.WebApp]{{Name: "record", Run: op.deleteRecord}},
	})
	if err != nil {
		return nil, err
	}
	return controller.New(controller.Config[*v1.WebApp]{
		Name:      Name,
		Retriever: informer.RetrieveSelected[*v1.WebApp](cluster, kube.Selection{Namespaces: config.Namespaces}),
		Sources:   children.Sources,
		// region chain
		// The status is written at the end of each run, with any result. The finalizer is added before the first call
		// of the handler.
		Handler: controller.Chain(op.handle,
			middleware.Status(children.Client, statusOptions()),
			middleware.Finalizer(record, middleware.FinalizerOptions[*v1.WebApp]{})),
		// endregion
		LeaderElector: config.LeaderElector, Metrics: config.Metrics, Events: config.Events,
		ResyncInterval: config.ResyncInterval, OwnWrites: controller.OwnWritesConfig{
			ConsistencyTimeout: config.ConsistencyTimeout,
		},
	})
}

// region handle

// handle brings the cluster and the record outside of it to app's desired state.
func (o *operator) handle(ctx context.Context, app *v1.WebApp) error {
	desired, err := children(app)
	if err != nil {
		return controller.Terminal(err)
	}
	report, err := o.children.Apply(ctx, app, owned.Of(desired...)...)
	if err == nil {
		if !report.Ready() {
			setStatus(app, report) // the next write contains this and the record's name
		}
		err = o.record(ctx, app) // before the status can be Ready
	}
	setStatus(app, report) // also if a child could not be applied: the report contains the reason
	return err
}

// endregion

// record creates, moves or deletes the record for spec.host. The status contains the name of a record before it is
// created, so that neither a crash nor a change of the spec can leave an unknown record.
func (o *operator) record(ctx context.Context, app *v1.WebApp) error {
	if app.Status.Host != app.Spec.Host {
		if err := o.deleteRecord(ctx, app); err != nil {
			return err
		}
		app.Status.Host = app.Spec.Host
		// This fails for a stale copy, which could lose the name of an existing record.
		if err := middleware.CommitStatus(ctx, app); err != nil {
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
func (o *operator) deleteRecord(ctx context.Context, app *v1.WebApp) error {
	if app.Status.Host == "" {
		return nil
	}
	return o.records.Delete(ctx, Record{Host: app.Status.Host, Owner: string(app.UID)})
}

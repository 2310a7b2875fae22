// Package operator keeps what each WebApp stands for: a Deployment, a Service and a ConfigMap in
// its namespace, and a record of its host outside the cluster.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Name is the operator's name: of its controller, its lease, its fields and its events.
const Name = "webapp-operator"

// Config says what the operator works with.
type Config struct {
	// Records knows hosts outside the cluster. Required.
	Records Records
	// Namespaces are those in which it works. Default: all.
	Namespaces []string
	// LeaderElector, Metrics, Events, ResyncInterval, ConsistencyTimeout and Logger are the
	// controller's. Optional; Events needs more rights than config/rbac.yaml gives (see package event).
	LeaderElector                      controller.LeaderElector
	Metrics                            controller.Recorder
	Events                             controller.EventRecorder
	ResyncInterval, ConsistencyTimeout time.Duration
	Logger                             *slog.Logger
}

// operator has what handlers need.
type operator struct {
	children *owned.Set
	records  Records
}

// New makes the operator's controller.
func New(cluster *kube.Cluster, config Config) (*controller.Controller[*v1.WebApp], error) {
	if config.Records == nil {
		return nil, errors.New("make the operator: Config.Records is required")
	}
	// region children
	// One list of kinds makes informers of what carries the set's label (not of every Deployment of
	// the cluster), a client that reads from them, the set, and sources.
	children, err := watched.New(watched.Config{
		Client:     client.Config{Cluster: cluster, FieldOwner: Name, Logger: config.Logger},
		Set:        owned.Config{Name: Name, Logger: config.Logger},
		Kinds:      []watched.Kind{watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service](), watched.Of[*corev1.ConfigMap]()},
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
		Retriever: informer.RetrieveSelected[*v1.WebApp](cluster, informer.Selection{Namespaces: config.Namespaces}),
		Sources:   children.Sources,
		// region chain
		// The status is written at the end of each run, whatever its end; the finalizer before the
		// handler is called for the first time.
		Handler: controller.Chain(controller.HandlerFunc[*v1.WebApp](op.handle),
			middleware.Status(children.Client, statusOptions()), middleware.Finalizer(record, middleware.FinalizerOptions[*v1.WebApp]{})),
		// endregion
		LeaderElector: config.LeaderElector, Metrics: config.Metrics, Events: config.Events,
		ResyncInterval: config.ResyncInterval, ConsistencyTimeout: config.ConsistencyTimeout, Logger: config.Logger,
	})
}

// region handle

// handle brings the cluster, and the record outside it, to what app asks for.
func (o *operator) handle(ctx context.Context, app *v1.WebApp) error {
	desired, err := children(app)
	if err != nil {
		return controller.Terminal(err)
	}
	report, err := o.children.Apply(ctx, app, owned.Of(desired...)...)
	if err != nil {
		return err
	}
	// The record comes first: what is said is in the status as soon as the record's name is noted there.
	err = o.record(ctx, app)
	say(app, report)
	return err
}

// endregion

// region record

// record makes the record outside the cluster follow spec.host. Before one is made its name is in
// the status, so that neither a crash nor a change of the spec makes it forgotten.
func (o *operator) record(ctx context.Context, app *v1.WebApp) error {
	if app.Status.Host != app.Spec.Host {
		if err := o.deleteRecord(ctx, app); err != nil {
			return err
		}
		app.Status.Host = app.Spec.Host
		// From a copy that is old this fails: it must not forget the record that it does not know of.
		if err := middleware.CommitStatus(ctx, app); err != nil {
			return fmt.Errorf("note the record of %q: %w", app.Spec.Host, err)
		}
	}
	if app.Spec.Host == "" {
		return nil
	}
	return o.records.Ensure(ctx, app.Spec.Host, app.Name+"."+app.Namespace+".svc")
}

// endregion

// deleteRecord removes the record that there may be.
func (o *operator) deleteRecord(ctx context.Context, app *v1.WebApp) error {
	if app.Status.Host == "" {
		return nil
	}
	return o.records.Delete(ctx, app.Status.Host)
}

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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/source"
)

// Name is the operator's name: of its controller, its lease, its fields and its events.
const Name = "webapp-operator"

// Config says what the operator works with.
type Config struct {
	// Records knows hosts outside the cluster. Required.
	Records Records
	// Namespaces are those in which it works. Default: all.
	Namespaces []string
	// LeaderElector, Metrics, Events, ResyncInterval and Logger are the controller's. Optional; Events
	// needs more rights than config/rbac.yaml gives (see package event).
	LeaderElector  controller.LeaderElector
	Metrics        controller.Recorder
	Events         controller.EventRecorder
	ResyncInterval time.Duration
	Logger         *slog.Logger
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
	deployments, err1 := ours[*appsv1.Deployment](cluster, config)
	services, err2 := ours[*corev1.Service](cluster, config)
	configMaps, err3 := ours[*corev1.ConfigMap](cluster, config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{
		Cluster: cluster, FieldOwner: Name, Logger: config.Logger,
		Informers: []client.Informer{deployments, services, configMaps},
	})
	if err != nil {
		return nil, err
	}
	children, err := owned.New(owned.Config{Client: c, Name: Name, Logger: config.Logger, Kinds: []schema.GroupVersionKind{
		deployments.Kind(), services.Kind(), configMaps.Kind(),
	}})
	if err != nil {
		return nil, err
	}
	op := &operator{children: children, records: config.Records}
	record, err := finalizer.New(finalizer.Config[*v1.WebApp]{
		Client: c, Name: v1.Finalizer,
		Steps: []finalizer.Step[*v1.WebApp]{{Name: "record", Run: op.deleteRecord}},
	})
	if err != nil {
		return nil, err
	}
	owner := source.Owner{Kind: schema.GroupKind{Group: v1.Group, Kind: v1.Kind}}
	return controller.New(controller.Config[*v1.WebApp]{
		Name:      Name,
		Retriever: informer.RetrieveSelected[*v1.WebApp](cluster, informer.Selection{Namespaces: config.Namespaces}),
		Sources: []controller.Source{
			source.OwnedIn(deployments, owner), source.OwnedIn(services, owner), source.OwnedIn(configMaps, owner),
		},
		// region chain
		// The status is written at the end of each run, whatever its end; the finalizer before the
		// handler is called for the first time.
		Handler: controller.Chain[*v1.WebApp](controller.HandlerFunc[*v1.WebApp](op.handle),
			middleware.Status(c, statusOptions()), middleware.Finalizer(record, middleware.FinalizerOptions[*v1.WebApp]{})),
		// endregion
		LeaderElector: config.LeaderElector, Metrics: config.Metrics, Events: config.Events,
		ResyncInterval: config.ResyncInterval, Logger: config.Logger,
	})
}

// ours returns an informer of what carries the set's label: not of every Deployment of the cluster.
func ours[T kube.Object](cluster *kube.Cluster, config Config) (*informer.Informer[T], error) {
	selection := informer.Selection{Namespaces: config.Namespaces, LabelSelector: owned.LabelSet + "=" + Name}
	return informer.New(informer.Config[T]{Retriever: informer.RetrieveSelected[T](cluster, selection), Logger: config.Logger})
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
	say(app, report)
	return o.record(ctx, app)
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

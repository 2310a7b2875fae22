package evenkeel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// Config configures an Operator. Name, Cluster and Handle are required.
type Config[T kube.Object] struct {
	// Name identifies the controller in logs and metrics. It is also the field owner of the operator's writes and the
	// label value of its children, unless Client.FieldOwner and Children.Name are set, so that it must never change.
	Name string
	// Cluster is the connection: see Program.Connect and kube.Connect. Its SetNamespaces limits the operator.
	Cluster *kube.Cluster
	// Handle brings the cluster to the desired state of obj, which it may change. Its error is the result of the run:
	// see controller.Handler.
	Handle func(ctx context.Context, obj T, run *Run) error

	// Owns are the kinds of the children that Run.Apply maintains: watched.Of[*appsv1.Deployment](). A change of a
	// child runs Handle for its owner. Default: no children.
	Owns []watched.Kind
	// Status returns pointers to the conditions and the observed generation in the status of obj; each may be nil. With
	// it, the status that Handle leaves in obj is written at the end of each run, as middleware.Status does. The
	// conditions Ready, Reconciling and Stalled belong to the operator: after a success they tell the state of the
	// children and of Run.States (ready if there are none), and otherwise the failure. Default: no status is written.
	Status func(obj T) (conditions *[]metav1.Condition, observedGeneration *int64)
	// Finalizer is added to each object before Handle is called; Teardown runs when the object is deleted, until it
	// returns nil. Set both, or none. See package finalizer.
	Finalizer string
	Teardown  func(ctx context.Context, obj T, run *Run) error
	// Default completes, and Validate decides on, each new and each changed object: see webhook.Func. Validate is not
	// called for objects that are being deleted, whose finalizers could not be removed otherwise. Program.Run serves
	// them. A second operator of the kind passes such hooks with a name to Program.Serve. Default: no webhooks.
	Default, Validate webhook.Func[T]

	// Controller, Children and Client have further settings of these parts. New sets the fields that the Config above
	// determines: they must be zero. It adds to Controller.Sources and Client.Informers.
	Controller controller.Config[T]
	Children   owned.Config
	Client     client.Config
}

// Operator is a controller with what its handler needs. New creates one. Run it with Program.Run, in a manager, or by
// its own Run.
type Operator[T kube.Object] struct {
	*controller.Controller[T]

	client *client.Client
	hooks  []webhook.Hook
	served atomic.Bool // whether Hooks was called
}

// New returns an Operator. It starts nothing and makes no request. The error contains the mistakes in config.
func New[T kube.Object](config Config[T]) (*Operator[T], error) {
	o, err := build(config)
	if err != nil {
		return nil, fmt.Errorf("new operator %q: %w", config.Name, err)
	}
	return o, nil
}

func build[T kube.Object](config Config[T]) (*Operator[T], error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	parts := &parts[T]{Config: config}
	o := &Operator[T]{hooks: config.hooks()}
	setup := config.Controller
	err := parts.open(&setup)
	if err == nil {
		err = parts.wrap(&setup)
	}
	if err != nil {
		return nil, err
	}
	setup.Name, setup.Cluster = config.Name, config.Cluster
	o.client = parts.client
	if o.Controller, err = controller.New(setup); err != nil {
		return nil, err
	}
	return o, nil
}

func (c Config[T]) validate() error {
	var mistakes usercode.Mistakes
	if c.Name == "" {
		mistakes.Addf("Name is required")
	}
	if c.Cluster == nil {
		mistakes.Addf("Cluster is required: Program.Connect or kube.Connect returns one")
	}
	if c.Handle == nil {
		mistakes.Addf("Handle is required")
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[controller.NoObject]() {
		mistakes.Addf("controller.NoObject has no objects to handle: use controller.New")
	}
	if (c.Finalizer == "") != (c.Teardown == nil) {
		mistakes.Addf("one of Finalizer and Teardown is set: set both or none")
	}
	for _, name := range usercode.SetFields(c, "Controller.Name", "Controller.Cluster", "Controller.Handler",
		"Controller.Reconciler", "Client.Cluster", "Children.Client") {
		mistakes.Addf("%s is set: New sets it", name)
	}
	if len(c.Owns) == 0 && !reflect.ValueOf(c.Children).IsZero() {
		mistakes.Addf("Children is set without Owns: list the kinds of the children there")
	}
	var zero T
	_, isMetadata := any(zero).(*metav1.PartialObjectMetadata)
	_, isUnstructured := any(zero).(runtime.Unstructured)
	if isMetadata && c.Status != nil {
		mistakes.Addf("Status is set, and objects with only metadata have none")
	}
	if (isMetadata || isUnstructured) && (c.Default != nil || c.Validate != nil) {
		mistakes.Addf("Default and Validate need a Go type of the kind, and this is %T: use Program.Serve with a "+
			"webhook that has a name and rules", zero)
	}
	return mistakes.Err()
}

// hooks returns the webhooks of the config.
func (c Config[T]) hooks() []webhook.Hook {
	var hooks []webhook.Hook
	options := webhook.HookConfig{}
	if c.Default != nil {
		hooks = append(hooks, webhook.Mutating(options, c.Default))
	}
	if c.Validate != nil {
		hooks = append(hooks, webhook.Validating(options, func(ctx context.Context, r *webhook.Request[T]) error {
			if r.Object.GetDeletionTimestamp() != nil {
				return nil
			}
			return c.Validate(ctx, r)
		}))
	}
	return hooks
}

// parts are what the handler of an operator works with.
type parts[T kube.Object] struct {
	Config[T]
	client   *client.Client
	children *owned.Set // nil without Owns
}

// open makes the client and the set of children.
func (p *parts[T]) open(setup *controller.Config[T]) (err error) {
	config := p.Config.Client
	config.Cluster, config.FieldOwner = p.Cluster, cmp.Or(config.FieldOwner, p.Name)
	if len(p.Owns) == 0 {
		p.client, err = client.New(config)
		return err
	}
	set := p.Children
	set.Name = cmp.Or(set.Name, p.Name)
	if usercode.IsNil(set.Events) {
		set.Events = p.Config.Controller.Events
	}
	children, err := watched.New(watched.Config{
		Client: config, Set: set, Kinds: p.Owns,
	})
	if err != nil {
		return err
	}
	p.client, p.children = children.Client, children.Set
	setup.Sources = append(slices.Clone(setup.Sources), children.Sources...)
	return nil
}

// wrap sets the handler with the middleware that the config asks for.
func (p *parts[T]) wrap(setup *controller.Config[T]) error {
	var middlewares []controller.Middleware[T]
	if p.Status != nil {
		middlewares = append(middlewares, middleware.Status(p.client, middleware.StatusOptions[T]{
			SetObservedGeneration: p.observe,
			OnError:               p.failed,
		}))
	}
	if p.Finalizer != "" {
		teardown, err := finalizer.New(finalizer.Config[T]{
			Client: p.client, Name: p.Finalizer,
			Steps: []finalizer.Step[T]{{Name: "teardown", Run: func(ctx context.Context, obj T) error {
				return p.Teardown(ctx, obj, p.run(obj))
			}}},
		})
		if err != nil {
			return err
		}
		middlewares = append(middlewares, middleware.Finalizer(teardown, middleware.FinalizerOptions[T]{
			Events: p.Config.Controller.Events,
		}))
	}
	setup.Handler = controller.Chain(p.handle, middlewares...)
	return nil
}

// handle is the innermost handler.
func (p *parts[T]) handle(ctx context.Context, obj T) error {
	run := p.run(obj)
	if err := run.check(); err != nil {
		return err
	}
	err := p.Handle(ctx, obj, run)
	if !controller.OutcomeOf(err).Failed() { // a failure is set by failed, unless the run was interrupted
		run.summarize()
	}
	return err
}

func (p *parts[T]) observe(obj T, generation int64) {
	if _, observed := p.Status(obj); observed != nil {
		*observed = generation
	}
}

func (p *parts[T]) failed(obj T, err error) {
	if conditions, _ := p.Status(obj); conditions != nil {
		middleware.FailureConditions(func(T) *[]metav1.Condition { return conditions })(obj, err)
	}
}

// run returns the Run of a call for obj.
func (p *parts[T]) run(obj T) *Run {
	run := &Run{Client: p.client, Children: p.children, owner: obj}
	run.commit = func(ctx context.Context) error {
		if p.Status == nil {
			return errors.New("commit the status: set Config.Status")
		}
		return middleware.CommitStatus(ctx, obj)
	}
	if p.Status != nil {
		run.status = func() (*[]metav1.Condition, *int64) { return p.Status(obj) }
	}
	return run
}

// Hooks returns the webhooks of Config.Default and Config.Validate. Program.Run serves them; another program passes
// them to a webhook.Server.
func (o *Operator[T]) Hooks() []webhook.Hook {
	o.served.Store(true)
	return o.hooks
}

// Run runs the controller: see controller.Controller.Run. It logs a warning if the operator has webhooks and nothing
// serves them.
func (o *Operator[T]) Run(ctx context.Context) error {
	if len(o.hooks) > 0 && !o.served.Swap(true) {
		o.client.Cluster().Logger().WarnContext(ctx, "webhooks are not served", "controller", o.Name(),
			"hint", "pass it, or a type that embeds *Operator, to Program.Run, or its Hooks to a webhook.Server")
	}
	return o.Controller.Run(ctx)
}

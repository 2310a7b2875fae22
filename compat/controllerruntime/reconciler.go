package controllerruntime

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// runnable is a controller of the manager. It consists of a controller of the engine and one of controller-runtime. The
// latter runs the watches, with their options, predicates and event handlers, and its workers call the Reconciler: so
// the context, the metrics of runs, panics and time-outs are the same as there. Between them is the engine instead of a
// queue.
type runnable struct {
	manager manager.Manager
	watches []watch
	sources ctrlcontroller.Controller
	queue   *queue
	engine  *controller.Controller[controller.NoObject]
}

func (b *Builder) newRunnable(name string, options ctrlcontroller.Options) (*runnable, error) {
	limiter := options.RateLimiter
	if limiter == nil {
		limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			5*time.Millisecond, 1000*time.Second)
	}
	c := &runnable{manager: b.manager, watches: b.watches, queue: newQueue(limiter)}
	r := &reconciler{options.Reconciler, c.queue}
	options.MaxConcurrentReconciles = max(options.MaxConcurrentReconciles, 1)
	config := controller.Config[controller.NoObject]{
		Name: name, Reconciler: r.handle, Workers: options.MaxConcurrentReconciles,
		Timeout: options.ReconciliationTimeout, Retry: retries(),
		// As there, each event runs a failed key: a Reconciler often fails until another object's status changes.
		Queue: controller.QueueConfig{
			EndBackoffIf: func(c controller.Cause) bool { return c.Source != controller.SourceLoop },
		},
		// Reconcilers of controller-runtime rely on the events of their own writes. No worker takes the place of one
		// that is stuck.
		Runs:   controller.RunsConfig{HandleOwnWrites: true, StuckAfter: -1},
		Logger: slog.New(logr.ToSlogHandler(b.manager.GetLogger())),
	}
	var err error
	if c.engine, err = controller.New(config); err != nil {
		return nil, err
	}
	c.sources, err = b.newSources(name, options, r)
	return c, err
}

// newSources returns a controller of controller-runtime with the queue of r.
func (b *Builder) newSources(
	name string, options ctrlcontroller.Options, r *reconciler,
) (ctrlcontroller.Controller, error) {
	options.Reconciler = nil
	options.NewQueue = func(string, workqueue.TypedRateLimiter[reconcile.Request]) requests {
		return workerQueue{r.queue}
	}
	sources := builder.ControllerManagedBy(withoutAdd{b.manager}).Named(name).WithOptions(options)
	for _, filter := range b.filters {
		sources.WithEventFilter(filter)
	}
	for _, w := range b.watches {
		sources.Watches(w.object, causing{w.handler(b), b.manager.GetScheme(), &sync.Map{}}, w.options...)
	}
	return sources.Build(r)
}

// withoutAdd is a manager that does not run what is added.
type withoutAdd struct{ manager.Manager }

// Add does nothing.
func (withoutAdd) Add(manager.Runnable) error { return nil }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *runnable) NeedLeaderElection() bool {
	of, ok := c.sources.(manager.LeaderElectionRunnable)
	return !ok || of.NeedLeaderElection()
}

// Warmup starts the sources before this process leads, if the option EnableWarmup is set.
func (c *runnable) Warmup(ctx context.Context) error {
	if of, ok := c.sources.(interface {
		Warmup(ctx context.Context) error
	}); ok {
		return of.Warmup(ctx)
	}
	return nil
}

// Start implements manager.Runnable.
func (c *runnable) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.sources.Start(ctx) }() // waited for below
	select {
	case err := <-ended: // before the caches have synced
		return err
	case <-c.queue.synced:
	}
	_, err := c.engine.AddSource(engineSource{c.queue, c.reads(ctx)})
	if err == nil {
		err = c.engine.Run(ctx)
	}
	cancel()
	c.queue.ShutDown() // after Warmup, it does not end with ctx
	return errors.Join(err, <-ended)
}

// reads returns the informers of NewCache for the watched kinds, and lets the client of NewClient find these kinds.
func (c *runnable) reads(ctx context.Context) (all []informer.Any) {
	cached, _ := c.manager.GetCache().(*encodedCache)
	observed, _ := c.manager.GetClient().(*observedClient)
	if cached == nil || observed == nil {
		if cached != nil || observed != nil {
			c.manager.GetLogger().Info("runs do not wait for own writes", "hint", "manager.Options needs both "+
				"NewCache and NewClient of this package, without wrappers")
		}
		return nil
	}
	for _, w := range c.watches {
		kind, err := observed.GroupVersionKindFor(w.object)
		if err != nil {
			continue // its watch failed
		}
		if _, err := observed.cluster.Resource(ctx, kind); err != nil {
			c.manager.GetLogger().Error(err, "kind not found, own writes of it are not awaited", "kind", kind)
		}
		for _, of := range cached.factory.informersOf(kind) {
			if !slices.Contains(all, of) {
				all = append(all, of)
			}
		}
	}
	return all
}

// engineSource is the source of the engine.
type engineSource struct {
	queue *queue
	reads []informer.Any
}

// Prepare implements controller.Source.
func (s engineSource) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{
		Name: "watch", Reads: s.reads,
		Start: func(ctx context.Context, enqueue controller.Enqueue) (run func() error, err error) {
			s.queue.attach(enqueue)
			return func() error { <-ctx.Done(); return nil }, nil
		},
	}, nil
}

// reconciler is the Handler of the engine, and the Reconciler that the workers of controller-runtime call.
type reconciler struct {
	to    reconcile.Reconciler // of the program
	queue *queue
}

// run is a run of the engine.
type run struct {
	ctx   context.Context //nolint:containedctx // of the engine, passed to a worker
	req   reconcile.Request
	ended chan struct{}

	// Set before ended is closed.
	result reconcile.Result
	err    error
}

// errNotCalled is the error of a run whose Reconciler did not return: it panicked. controller-runtime logs the stack.
var errNotCalled = errors.New("the Reconciler panicked")

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	current := r.queue.runOf(req)
	current.result, current.err = r.to.Reconcile(runContext{ctx, current.ctx}, req)
	return current.result, current.err
}

// runContext is the context of controller-runtime with the values of the engine's context.
type runContext struct {
	context.Context //nolint:containedctx // it is a context

	run context.Context //nolint:containedctx // it is a context
}

// Value implements context.Context.
func (c runContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.run.Value(key)
}

// handle is a controller.Reconciler.
func (r *reconciler) handle(ctx context.Context, key kube.Key) error {
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: key.Name}}
	run, ok := r.queue.call(ctx, req)
	if !ok {
		return context.Canceled
	}
	result, err, limiter := run.result, run.err, r.queue.limiter
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
		return controller.Terminal(err)
	case err != nil:
		return limited{err, limiter.When(req)}
	case result.RequeueAfter > 0:
		return &controller.RequeueError{After: result.RequeueAfter, Priority: priorityOf(result.Priority)}
	case result.Requeue: //nolint:staticcheck // programs use it
		return &controller.RequeueError{
			After: limiter.When(req), Reason: "Result.Requeue", Priority: priorityOf(result.Priority),
		}
	}
	return nil
}

// retries returns the retry config: the rate limiter determines when, as there. controller-runtime logs errors.
func retries() retry.Config {
	const class = "rateLimiter"
	atOnce := retry.Policy{Base: time.Millisecond, Max: time.Millisecond, Factor: 1, Jitter: -1}
	return retry.Config{
		Every:    retry.Policy{QuietFailures: math.MaxInt},
		Classify: func(error) retry.Class { return class },
		Policies: map[retry.Class]retry.Policy{class: atOnce, retry.Timeout: atOnce},
	}
}

// limited is an error that is retried after a delay, at most 10 min.
type limited struct {
	error

	after time.Duration
}

// RetryAfter returns the delay.
func (e limited) RetryAfter() time.Duration { return e.after }

// Unwrap returns the error of the Reconciler.
func (e limited) Unwrap() error { return e.error }

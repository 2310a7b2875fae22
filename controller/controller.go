package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Controller runs a Handler for the objects of a Retriever. See Handler for what it
// promises, Config for what can be set.
type Controller[T kube.Object] struct {
	// Immutable after New.
	config   Config[T]
	sources  []*namedSource // of config
	informer *informer.Informer[T]
	rules    *retry.Rules
	history  *history
	problems *problems
	guard    *usercode.Guard

	mu    sync.Mutex
	phase Phase          // guarded by mu
	loop  *loop[T]       // guarded by mu; nil unless the controller works
	added []*addedSource // guarded by mu
}

// addedSource is a source that was added at run time.
type addedSource struct {
	source *namedSource
	remove func() // from the present term; guarded by Controller.mu
}

// New makes a Controller. It starts nothing and makes no request. The error names every
// mistake in config at once.
func New[T kube.Object](config Config[T]) (*Controller[T], error) {
	config = config.withDefaults()
	err := config.validate()
	guard := usercode.NewGuard(config.Logger.With("controller", config.Name))
	config = config.guarded(guard)
	inf := config.Informer
	if retriever := config.retriever(); retriever != nil {
		var informerErr error
		inf, informerErr = informer.New(informer.Config[T]{
			Name: config.Name, Retriever: retriever, Metrics: config.Metrics, Logger: config.Logger,
		})
		err = errors.Join(err, informerErr)
	}
	rules, retryErr := retry.New(config.Retry)
	c := &Controller[T]{
		config: config, informer: inf, guard: guard, rules: rules, history: newHistory(),
		problems: &problems{open: map[problemID]Problem{}},
	}
	errs := []error{err, retryErr}
	for i, source := range config.Sources {
		prepared, err := c.prepare(source, fmt.Sprintf("source %d (%T)", i, source))
		if err != nil {
			errs = append(errs, fmt.Errorf("Sources[%d] %w", i, err))
		}
		c.sources = append(c.sources, prepared)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new controller %q: %w", config.Name, err)
	}
	return c, nil
}

// Name returns the controller's name.
func (c *Controller[T]) Name() string { return c.config.Name }

// Informer returns the controller's cache: the one it was given, or its own.
func (c *Controller[T]) Informer() *informer.Informer[T] { return c.informer }

// Run works until ctx ends.
//
// Flow:
//  1. With a LeaderElector, it waits until it leads.
//  2. It runs the informer and waits until everything has been listed. What stands in
//     the way (a permission, a missing CustomResourceDefinition, a network) is logged,
//     shown by Ready and in metrics, and waited for.
//  3. Workers handle every listed object once, and from then on what changes.
//  4. When ctx ends, no further key is begun; handlers may finish for the drain time,
//     and then their contexts are cancelled. When leadership is lost, they are cancelled
//     at once, and Run goes back to step 1.
//  5. It returns when every worker, source and watch has ended: a handler that heeds its
//     context bounds how long that takes.
//
// It returns nil when ctx ended; otherwise the error of a source or of the elector, or
// that the controller runs already. It may be called again after it has returned.
func (c *Controller[T]) Run(ctx context.Context) error {
	begins := PhaseStandby
	if c.config.LeaderElector == nil {
		begins = PhaseSyncing
	}
	if !c.enter(PhaseStopped, begins) {
		return fmt.Errorf("run controller %q: it is running already", c.config.Name)
	}
	defer c.set(PhaseStopped, nil)
	if c.config.Metrics != nil {
		defer c.config.Metrics.ObserveController(c.config.Name, c.Stats)()
	}
	if c.config.LeaderElector == nil {
		return c.work(ctx)
	}
	return c.config.LeaderElector.Run(ctx, func(ctx context.Context) error {
		defer c.set(PhaseStandby, nil)
		return c.work(ctx)
	})
}

// work is one term: from being allowed to work to the end of ctx.
func (c *Controller[T]) work(ctx context.Context) error {
	l := newLoop(c)
	c.problems.begun(l.reportProblem)
	c.mu.Lock()
	for _, a := range c.added {
		a.remove = l.sources.add(a.source)
	}
	c.phase, c.loop = PhaseSyncing, l
	c.mu.Unlock()
	defer l.logger.DebugContext(ctx, "controller stopped")
	defer c.problems.clear()
	return l.run(ctx, func(p Phase) { c.set(p, l) })
}

// AddSource adds a source, as if it were in Config.Sources from now on: it is run at once when
// the controller works, and in each later term. A controller that works does not wait for the
// informers of the source. remove ends the source, waits for its end, and stops its informers
// unless others use them; it may be called at any time, once.
//
// It is how watches come and go at run time: for kinds that a user's object names, for
// instance.
func (c *Controller[T]) AddSource(source Source) (remove func(), err error) {
	prepared, err := c.prepare(source, fmt.Sprintf("added source (%T)", source))
	if err != nil {
		return nil, fmt.Errorf("controller %q: add a source: the source %w", c.config.Name, err)
	}
	a := &addedSource{source: prepared, remove: func() {}}
	c.mu.Lock()
	c.added = append(c.added, a)
	l := c.loop
	c.mu.Unlock()
	if l != nil {
		// Not under mu: it may have to wait for an informer that is just ending.
		removeNow := l.sources.add(prepared)
		c.mu.Lock()
		if c.loop == l {
			a.remove = removeNow
		}
		c.mu.Unlock()
	}
	return func() { c.removeSource(a) }, nil
}

func (c *Controller[T]) removeSource(a *addedSource) {
	c.mu.Lock()
	c.added = slices.DeleteFunc(c.added, func(other *addedSource) bool { return other == a })
	removeNow := a.remove
	c.mu.Unlock()
	removeNow()
}

// reads returns everything whose readiness is the controller's.
func (c *Controller[T]) reads() []informer.Any {
	c.mu.Lock()
	l := c.loop
	c.mu.Unlock()
	all := append([]informer.Any{c.informer}, c.config.Reads...)
	if l != nil {
		all = append(all, l.sources.reads()...)
	}
	return all
}

func (c *Controller[T]) enter(from, to Phase) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != from {
		return false
	}
	c.phase = to
	return true
}

func (c *Controller[T]) set(p Phase, l *loop[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.loop = p, l
}

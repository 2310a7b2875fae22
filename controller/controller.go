package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/evenkeel-go/evenkeel/controller/internal/interruptions"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Controller runs a Handler for the objects of a Retriever. Handler documents the guarantees, and Config the settings.
type Controller[T kube.Object] struct {
	// Immutable after New.
	config   Config[T]
	sources  []*namedSource // of config.Sources
	informer *informer.Informer[T]
	rules    *retryrules.Rules
	history  *history
	problems *problems
	guard    *usercode.Guard
	primary  primary[T]

	unwritten unwritten
	files     *interruptions.File // set by Run, for its terms; nil without Config.Runs.StateDir

	mu    sync.Mutex
	phase Phase          // guarded by mu
	loop  *loop[T]       // guarded by mu; nil while the controller is stopped or in standby
	begun bool           // guarded by mu; a term has begun
	last  *pool          // guarded by mu; of the current term, and of an ended one while its handlers run
	added []*addedSource // guarded by mu
}

// addedSource is a source that was added at run time.
type addedSource struct {
	source *namedSource
	late   bool   // it was added after the first term had begun
	remove func() // removes it from the current term; guarded by Controller.mu
}

// New returns a Controller. It starts nothing and makes no request. The error contains every mistake in config.
func New[T kube.Object](config Config[T]) (*Controller[T], error) {
	guard := usercode.NewGuard(nil) // nothing is called before it has a logger
	primary, given := primaryOf[T](), config.guarded(guard)
	config, inf, informerErr := given.connected(guard, primary)
	guard.SetLogger(config.Logger.With("controller", config.Name))
	config = config.fromCluster(guard).withDefaults(primary)
	err := errors.Join(config.validate(given, primary), informerErr)
	rules, retryErr := retryrules.New(config.Retry)
	c := &Controller[T]{
		config: config, informer: inf, guard: guard, rules: rules, history: newHistory(),
		problems: &problems{open: map[problemID]Problem{}}, phase: PhaseStopped, primary: primary,
	}
	errs := []error{err, retryErr}
	for i, source := range config.Sources {
		prepared, err := c.prepare(source, fmt.Sprintf("source %d (%T)", i, source))
		if err != nil {
			errs = append(errs, fmt.Errorf("Sources[%d] %w", i, err)) //nolint:staticcheck // the name of a field
		}
		c.sources = append(c.sources, prepared)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new controller %q: %w", config.Name, err)
	}
	observers := apiobject.ObserversOf(config.Cluster)
	observers.SetCreated()
	if inf != nil {
		kind := inf.Kind()
		if kind.Empty() && config.Cluster != nil {
			kind, _ = config.Cluster.KindOf(apiobject.New[T]())
		}
		of := cache.Of(inf)
		observers.Controls(config.Name, reflect.TypeFor[T](), kind, of.Namespaces(), of.Cluster() == nil)
	}
	return c, nil
}

// Name returns the controller's name.
func (c *Controller[T]) Name() string { return c.config.Name }

// Informer returns the controller's informer: Config.Informer, or the controller's own. It is nil for NoObject.
func (c *Controller[T]) Informer() *informer.Informer[T] { return c.informer }

// Run runs the controller until ctx ends.
//
// Flow:
//  1. With a LeaderElector, it waits until this process leads.
//  2. It runs the informer and waits until all objects are listed. It logs what prevents this (a missing permission, a
//     missing CustomResourceDefinition, a network failure), reports it in Ready and in metrics, and keeps waiting.
//  3. Workers handle every listed object once, and then every change.
//  4. When ctx ends, workers start no further key (but see RunsConfig.DrainQueue). Handlers may finish within
//     RunsConfig.DrainTimeout; then their contexts are cancelled. When leadership is lost, their contexts are
//     cancelled at once, and Run goes back to step 1.
//  5. Run returns when every worker, source and watch has ended. If a handler or a source ignores the end of its
//     context, Run returns 3 s after the drain time, with an error that names it and its key: then the process must
//     end. An elector of package leader keeps the lease until it expires, and refuses writes with the contexts of
//     handlers. With another LeaderElector, which cannot do that, Run waits for the handlers.
//
// Run returns nil if ctx ended. Otherwise it returns the error of a source or of the elector, or an error if the
// controller is running already, if another one with its name and kube.Cluster is, or if it cannot use Runs.StateDir.
// Run may be called again after it has returned, and returns an error while handlers of the last call still run.
func (c *Controller[T]) Run(ctx context.Context) error {
	observers.Queue(ctx, c.observed)
	begins := PhaseStandby
	if c.config.LeaderElector == nil {
		begins = PhaseSyncing
	}
	c.mu.Lock()
	stopped := c.phase == PhaseStopped
	if stopped {
		c.phase = begins
	}
	c.mu.Unlock()
	if !stopped {
		return fmt.Errorf("run controller %q: it is running already", c.config.Name)
	}
	defer c.set(PhaseStopped, nil)
	if c.config.Metrics != nil {
		defer c.config.Metrics.ObserveController(c.config.Name, c.Stats)()
	}
	if c.config.Runs.StateDir != "" {
		file, err := interruptions.Open(c.config.Runs.StateDir, c.config.Name,
			c.config.Logger.With("controller", c.config.Name))
		if err != nil {
			return fmt.Errorf("run controller %q: open its files in StateDir: %w", c.config.Name, err)
		}
		defer file.Close() //nolint:errcheck // no write is pending
		c.files = file
	}
	if c.config.LeaderElector == nil {
		return c.work(ctx)
	}
	return c.config.LeaderElector.Run(ctx, func(ctx context.Context) error {
		defer c.set(PhaseStandby, nil)
		return c.work(ctx)
	})
}

// work runs one term: from the start, or from gaining leadership, until ctx ends.
func (c *Controller[T]) work(ctx context.Context) error {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last.handled() != nil {
		return fmt.Errorf("run controller %q: %w: %s of its last run: they must return when their contexts end",
			c.config.Name, leadership.ErrStillRunning, last.remaining())
	}
	if claims := c.claims(); claims != nil {
		release, other := claims.Claim(nameClaim(c.config.Name), c, c.config.Name)
		if release == nil {
			return fmt.Errorf("run controller %q: another controller of the same kube.Cluster has the name "+
				"%q and runs: logs, metrics and Events could not tell them apart; set another Config.Name",
				c.config.Name, other)
		}
		defer release()
	}
	l := newLoop(c, observers.RunFrom(ctx))
	c.problems.begun(l.reportProblem)
	c.mu.Lock()
	for _, a := range c.added {
		a.remove = l.sources.add(a.source, a.late)
	}
	c.phase, c.loop, c.last, c.begun = PhaseSyncing, l, l.pool, true
	c.mu.Unlock()
	err := l.run(ctx, func(p Phase) {
		if c.set(p, l); p == PhaseRunning {
			observers.Started(ctx, c, func() error { return errors.Join(l.sources.notReady()...) })
		}
	})
	if l.pool.handled() == nil { // the pool keeps the term in memory
		c.mu.Lock()
		c.last = nil
		c.mu.Unlock()
	}
	c.problems.clear()
	l.logger.InfoContext(ctx, "controller stopped", "reason", cmp.Or(err, context.Cause(ctx)))
	return err
}

// nameClaim is the name of a controller that runs.
type nameClaim string

// claims returns the names that are in use for the controller's Cluster, or nil if that is not known.
func (c *Controller[T]) claims() *apiobject.Claims {
	if c.config.Cluster == nil {
		return nil
	}
	return apiobject.ClaimsOf(c.config.Cluster.HTTPClient())
}

// AddSource adds a source as if it were in Config.Sources from now on: the controller runs it at once if it is running,
// and in each later call of Run and term of leadership. If the source is added after the first term has begun, no term
// waits for the source and its informers, but AddSource returns only when the source has started, and source.Shared
// starts when its informer has synced. remove ends the source, waits for its end, and stops its informers unless they
// have other users. It may be called at any time, but only once, and not by the source itself.
//
// AddSource makes it possible to add and remove watches at run time, for example for kinds that a user's object names.
func (c *Controller[T]) AddSource(source Source) (remove func(), err error) {
	prepared, err := c.prepare(source, fmt.Sprintf("added source (%T)", source))
	if err != nil {
		return nil, fmt.Errorf("controller %q: add a source: the source %w", c.config.Name, err)
	}
	a := &addedSource{source: prepared, remove: func() {}}
	c.mu.Lock()
	c.added = append(c.added, a)
	l := c.loop
	a.late = c.begun
	c.mu.Unlock()
	if l != nil {
		// mu must not be held: add may have to wait for an informer that is just ending.
		removeNow := l.sources.add(prepared, true)
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

// reads returns the informers that must be ready before the controller is ready.
func (c *Controller[T]) reads() []informer.Any {
	_, l := c.current()
	all := withOwn(c.informer, c.config.Reads)
	if l != nil {
		all = append(all, l.sources.reads()...)
	}
	return all
}

// current returns the phase, and the loop of the current term, or nil.
func (c *Controller[T]) current() (Phase, *loop[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase, c.loop
}

func (c *Controller[T]) set(p Phase, l *loop[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.loop = p, l
}

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/controller/internal/resync"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Cancellation causes of handlers' contexts.
var (
	errDrained = errors.New("the drain time is over")
	errEnded   = errors.New("the controller has ended")
)

// slowSync is the time after which an initial list that has not completed is logged.
const slowSync = 5 * time.Second

// objects is the informer of the controller's own objects, without its type parameter, or takes its place.
type objects interface {
	cache.Untyped
	Kind() schema.GroupVersionKind
	Len() int
	Has(key kube.Key) bool
	// Absent reports whether there is no object under key. It is false if the object may exist: an error of a read is
	// not an absence.
	Absent(key kube.Key) bool
	Walk(share, shares int) iter.Seq[informer.Change]
	// listed must be called when a source that lists keys enqueues key, before key is added to the queue.
	listed(key kube.Key)
}

// ownInformer is an informer as objects.
type ownInformer[T kube.Object] struct{ *informer.Informer[T] }

// Has implements objects.
func (o ownInformer[T]) Has(key kube.Key) bool { return cache.Of(o).Has(key) }

// Absent implements objects.
func (o ownInformer[T]) Absent(key kube.Key) bool { return cache.Of(o).Absent(key) }

func (ownInformer[T]) listed(kube.Key) {}

// isObject reports whether own shows an object under key. A key that only sources list has no object.
func isObject(own objects, key kube.Key) bool {
	_, found := cache.Of(own).Encoded(key)
	return found
}

// loop is one term of a controller. It creates the parts of the term, starts and ends them, and runs keys: handle.go
// reads the object, calls the handler, and passes the result to the schedule. Only this needs the type parameter.
//
// The path of a key: intake -> queue (lists and polls: intake -> feeder -> queue) -> pool -> loop.handle -> schedule.
//
// Each part has its own lock, and calls the user's code without it; only the queue calls QueueConfig.Group and
// EndBackoffIf with its lock. The order of the locks: an informer's events, the lock of a part, that of the queue, that
// of failures.
type loop[T kube.Object] struct {
	// Immutable after newLoop.
	config   Config[T]
	informer *informer.Informer[T] // nil without a primary kind
	own      objects               // see ownObjects
	logger   *slog.Logger
	problems *problems // shared by the controller's terms
	gates    gateList  // in the order in which a key passes them
	// observers are called in this order: those that know more about a run come first.
	observers observerList

	queue    *queue
	enqueuer *enqueuer
	intake   *intake
	sources  *sources
	feeder   *feeder
	pool     *pool
	schedule *schedule
	watchdog *watchdog

	// State about keys between their runs.
	ownWrites *ownWrites
	failures  *failures
	successes *resync.Successes
	timers    *timers
	ends      *ends
	unwritten *unwritten // shared by the controller's terms
	// interrupted is nil without Config.Runs.StateDir.
	interrupted *interrupted
}

// newLoop returns a loop. observeRun is the observer of a test environment, or nil.
func newLoop[T kube.Object](c *Controller[T], observeRun observers.RunFunc) *loop[T] {
	config := c.config
	l := &loop[T]{
		config:    config,
		informer:  c.informer,
		logger:    config.Logger.With("controller", config.Name),
		problems:  c.problems,
		queue:     newQueue(config.Queue.Group, config.Queue.GroupLimit),
		failures:  &failures{keys: map[kube.Key]*failing{}},
		successes: resync.NewSuccesses(),
		ends:      &ends{keys: map[kube.Key][]*end{}},
		unwritten: &c.unwritten,
	}
	l.own = l.ownObjects()
	l.enqueuer = &enqueuer{queue: l.queue, informer: cache.Of(l.own)}
	l.timers = &timers{enqueuer: l.enqueuer, objects: l.own, keys: map[kube.Key]map[string]*time.Timer{}}
	l.pool = newPool(l.queue, config.Name, config.Workers,
		&limits{limiter: config.Queue.Limiter, guard: c.guard, logger: l.logger}, config.Runs.DrainQueue, l.handle)
	l.follow(c, observeRun)
	l.schedule = &schedule{
		enqueuer: l.enqueuer, queue: l.queue, objects: l.own, rules: c.rules, observers: l.observers, logger: l.logger,
		repeats:  detect.NewRepeats(),
		failures: l.failures, successes: l.successes, timers: l.timers, ends: l.ends,
		endBackoffIf: config.Queue.EndBackoffIf, mayHelp: config.mayHelp, keepsEnds: config.Deleted != nil,
		reconciles: config.Reconciler != nil,
	}
	l.feeder = newFeeder(l.queue, l.enqueuer, config.Queue, l.own, config.Predicate, l.pool)
	l.intake = &intake{
		enqueuer: l.enqueuer, feeder: l.feeder, schedule: l.schedule, failures: l.failures,
		gates: l.gates, objects: l.own, predicate: config.Predicate, config: config.Queue,
	}
	l.sources = newSources(config.Name, c.guard, l.intake.triggered, c.sources)
	return l
}

// follow creates the gates and the observers.
func (l *loop[T]) follow(c *Controller[T], observeRun observers.RunFunc) {
	config, content := l.config, &contentDecoder{l.watched}
	hot := newHotLoops(l.problems, content, config.Runs.MaxPause, config.ResyncInterval)
	l.ownWrites = &ownWrites{
		config: config.Runs, enqueuer: l.enqueuer, problems: l.problems, content: content,
		tracker: ownwrites.New(ownwrites.Config{
			Timeout: config.Runs.ConsistencyTimeout, Release: l.queue.Release, Informers: l.watched,
		}),
	}
	l.watchdog = &watchdog{
		stuckAfter: config.Runs.StuckAfter, workers: config.Workers, pool: l.pool, queue: l.queue, problems: l.problems,
	}
	l.gates = gateList{l.ownWrites}
	l.observers = observerList{l.ownWrites, c.history, hot, l.problems, l.watchdog}
	if c.files != nil {
		l.interrupted = newInterrupted(c.files, l.queue.Release, l.own, l.problems, l.logger)
		l.gates, l.observers = append(l.gates, l.interrupted), append(l.observers, l.interrupted)
	}
	l.gates = append(l.gates, hot)
	if config.Metrics != nil {
		l.observers = append(l.observers, &meter{controller: config.Name, recorder: config.Metrics})
	}
	l.observers = append(l.observers, &runLog{logger: l.logger})
	if observeRun != nil {
		l.observers = append(l.observers, &simulated{observe: observeRun})
	}
	l.enqueuer.observers, l.watchdog.observers, l.failures.observers = l.observers, l.observers, l.observers
}

// run runs the controller until ctx ends or a source fails. It returns when everything that it started has ended, or
// with an error that names what has not ended in time.
func (l *loop[T]) run(ctx context.Context, entered func(Phase)) (err error) {
	end := &ending{unbounded: l.config.LeaderElector != nil && leadership.Of(ctx) == nil}
	defer func() { err = errors.Join(err, end.err(l.config.Name)) }()
	// The informer and the handlers outlive ctx: handlers read the cache during the drain. Loss of leadership itself
	// cancels the handlers.
	background := context.WithoutCancel(ctx)
	leading, stopLeading := kube.UntilLeadershipLost(ctx)
	defer stopLeading()
	workCtx, cancelWork := context.WithCancelCause(leading)
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	defer cancelWork(errEnded)

	// The informers are joined first, so that everything below uses one session of each informer, even if the
	// informer has other users. The deferred calls leave them last.
	informers := withOwn(l.informer, l.config.Reads)
	for _, inf := range informers {
		defer end.leave(inf, inf.Join(background))
	}
	if l.informer != nil {
		l.feeder.passes.request(nil) // without objects, the backlog has the keys of the first pass
		defer end.leave(l.informer, cache.Of(l.own).Subscribe(l.intake.changed))
	}
	defer end.wait(l.sources.leave, "informers of sources")
	defer l.ownWrites.tracker.Stop()
	defer l.timers.end()
	var tasks sync.WaitGroup
	watch, stopWatch := context.WithCancel(background)
	defer stopWatch()
	var synced error
	started := ended(func() { synced = l.sync(intake, background, stopIntake, informers) })
	select {
	case <-started:
	case <-intake.Done():
	}
	if intake.Err() == nil {
		entered(PhaseRunning)
		l.startWork(ctx, workCtx, intake, watch, &tasks)
	}
	<-intake.Done()
	entered(PhaseDraining)
	l.pool.end()
	if l.config.Runs.DrainQueue {
		l.queue.Drain()
	} else {
		l.queue.ShutDown()
	}
	l.interrupted.end()
	// The drain comes before the wait for the sources: a source that ends slowly must not delay the cancellation of
	// handlers.
	end.deadline = time.Now().Add(max(l.config.Runs.DrainTimeout, 0) + returnTime)
	l.drain(ctx, cancelWork, end)
	stopWatch()
	end.wait(tasks.Wait, "functions that list keys")
	if end.await(started, l.sources.remaining) {
		err = synced
		end.await(ended(func() { _ = l.sources.wait() }), l.sources.remaining) // the errors are read below
	}
	return errors.Join(err, l.sources.err())
}

// startWork starts the workers and the tasks of a term. They end after intake, the watchdog with watch.
func (l *loop[T]) startWork(ctx, workCtx, intake, watch context.Context, tasks *sync.WaitGroup) {
	l.logger.InfoContext(ctx, "controller started", "objects", l.own.Len(), "workers", l.config.Workers)
	l.intake.begin()
	l.interrupted.begin(ctx)
	l.pool.start(workCtx, intake)
	tasks.Go(func() { // waited for by run
		if _, ok := l.feeder.feedNext(intake); ok { // the first pass
			l.interrupted.allAdded()
			tasks.Go(func() { l.resync(intake) }) // waited for by run
			l.feeder.feed(intake)
		}
	})
	tasks.Go(func() { l.collectKeys(intake) })            // waited for by run
	tasks.Go(func() { l.watchdog.watch(watch, workCtx) }) // waited for by run
}

// sync starts the sources, and waits until they have started and all informers, including theirs, have synced. If it
// returns an error, it has ended intake. If intake ends for another reason, it returns nil.
func (l *loop[T]) sync(intake, background context.Context, stopIntake func(), informers []informer.Any) error {
	// The informers log failures themselves, but do not log a list that is only slow.
	slow := time.AfterFunc(slowSync, func() {
		l.logger.InfoContext(intake, "controller waits for its first list", "state", l.notSynced(informers))
	})
	defer slow.Stop()
	inTime, overdue := func() bool { return true }, make(chan error, 1)
	if l.config.SyncTimeout > 0 {
		inTime = time.AfterFunc(l.config.SyncTimeout, func() {
			if intake.Err() != nil {
				overdue <- nil
				return
			}
			overdue <- fmt.Errorf("not within SyncTimeout (%s): %w", l.config.SyncTimeout,
				cmp.Or(l.notSynced(informers), context.DeadlineExceeded))
			stopIntake() // it ends sources that wait in Start
		}).Stop
	}
	l.sources.begin(intake, background, stopIntake)
	err := l.waitSynced(intake, informers)
	if !inTime() {
		err = <-overdue
	} else if intake.Err() != nil {
		return nil
	}
	if err == nil {
		return nil
	}
	// Besides the timeout: an *informer.Informer never fails before ctx ends, but others in Config.Reads may.
	stopIntake()
	return fmt.Errorf("controller %q: wait for the first lists: %w", l.config.Name, usercode.Error(err))
}

// waitSynced waits until all informers, including those of the sources, have synced, or ctx ends.
func (l *loop[T]) waitSynced(ctx context.Context, informers []informer.Any) error {
	for _, inf := range informers {
		if err := inf.WaitSynced(ctx); err != nil {
			return err
		}
	}
	return l.sources.waitSynced(ctx)
}

// notSynced returns why sync waits.
func (l *loop[T]) notSynced(informers []informer.Any) error {
	return errors.Join(readyAll(append(slices.Clone(informers), l.sources.reads()...)), l.sources.starting())
}

// drain waits for the workers, and cancels their handlers when the drain time is over. Loss of leadership cancels
// them independently: see run.
func (l *loop[T]) drain(ctx context.Context, cancelWork context.CancelCauseFunc, end *ending) {
	ended := ended(l.pool.wait)
	timeout := time.NewTimer(max(l.config.Runs.DrainTimeout, 0))
	defer timeout.Stop()
	// From here on, no key that is left in a draining queue is started.
	defer l.queue.ShutDown()
	lost, overdue := leadership.Lost(ctx), false
	if errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
		lost = ctx.Done() // electors of other libraries only cancel contexts
	}
	select {
	case <-ended:
		return
	case <-lost:
	case <-timeout.C:
		select {
		case <-lost: // both happened: the loss cancels the handlers, with its own cause
		default:
			overdue = true
		}
	}
	l.queue.ShutDown()
	if overdue {
		cancelWork(errDrained)
		if l.config.Runs.DrainTimeout > 0 {
			l.logger.WarnContext(ctx, "handlers are cancelled: the drain time is over",
				"drainTimeout", l.config.Runs.DrainTimeout, "handlers", l.queue.Stats().Processing)
		}
	}
	end.await(ended, l.pool.remaining)
}

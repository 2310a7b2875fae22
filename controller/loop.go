package controller

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/controller/internal/resync"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Cancellation causes of handlers' contexts.
var (
	errDrained = errors.New("the drain time is over")
	errEnded   = errors.New("the controller has ended")
)

// slowSync is the time after which an initial list that has not completed is logged.
const slowSync = 5 * time.Second

// objects is the informer of the controller's own objects, without its type parameter.
type objects interface {
	informer.Any
	Has(key kube.Key) bool
	Listed(share, shares int) iter.Seq[informer.Change]
}

// loop is one term of a controller: its queue, its workers, and its state about keys.
//
// intake.go adds the keys of changes to the queue, workers.go takes them out and runs them, and follow.go decides what
// follows a run. The state between runs is in consistency.go (writes that the informers do not show yet), failures.go,
// ends.go (deleted objects), timers.go, feeder.go (keys found by lists), and internal/resync (last successes).
type loop[T kube.Object] struct {
	// Immutable after newLoop.
	config   Config[T]
	informer *informer.Informer[T]
	queue    *queue
	sources  *sources
	logger   *slog.Logger

	kind     schema.GroupKind // of the controller's own objects; empty if it is not known
	rules    *retryrules.Rules
	history  *history // shared by the controller's terms, as problems is
	problems *problems

	works atomic.Bool // workers were started, or are about to be
	// clusterScoped is set when an object without a namespace was seen: either all objects of a kind have a
	// namespace, or no object has.
	clusterScoped atomic.Bool
	enqueuer      *enqueuer
	feeder        *feeder

	consistency *consistency
	failures    failures
	successes   *resync.Successes
	timers      timers
	ends        ends
	hot         *hotLoops
	writes      *writes
	repeats     *detect.Repeats

	// answers defines the fields that are cut from the objects in write responses. Immutable.
	answers *wire.Cut

	pool     *pool
	watchdog *watchdog
}

func newLoop[T kube.Object](c *Controller[T]) *loop[T] {
	config := c.config
	l := &loop[T]{
		config:   config,
		informer: c.informer,
		queue:    newQueue(config.Queue.Group, config.Queue.GroupLimit),
		logger:   config.Logger.With("controller", config.Name),
		kind:     c.informer.Kind().GroupKind(),
		rules:    c.rules,
		history:  c.history,
		problems: c.problems,
		failures: failures{keys: map[kube.Key]*failing{}},
		ends:     ends{keys: map[kube.Key][]*end{}},
		repeats:  detect.NewRepeats(),
		answers:  answerCut(),
	}
	l.enqueuer = &enqueuer{queue: l.queue, controller: config.Name, metrics: config.Metrics, history: c.history, informer: c.informer.Untyped()}
	l.pool = newPool(l.queue, config.Name, config.Workers, l.handle)
	l.feeder = newFeeder(l.enqueuer, config.Queue, c.informer, config.Predicate, l.pool)
	l.successes = resync.NewSuccesses()
	l.timers = timers{keys: map[kube.Key]map[string]*time.Timer{}, fire: l.timerFired, gone: l.gone}
	l.consistency = &consistency{timeout: config.OwnWrites.ConsistencyTimeout, queue: l.queue, watched: l.watched, keys: map[kube.Key]*unseen{}}
	content := &contentDecoder{l.watched}
	l.hot = newHotLoops(l.problems, content)
	l.writes = &writes{
		config: config.OwnWrites, enqueuer: l.enqueuer, consistency: l.consistency, hot: l.hot, problems: l.problems, content: content,
	}
	l.watchdog = &watchdog{
		stuckAfter: config.Stuck.After, workers: config.Workers, pool: l.pool, queue: l.queue, hot: l.hot, problems: l.problems,
	}
	l.sources = newSources(config.Name, c.guard, l.triggered, c.sources)
	return l
}

// gone reports whether the object uid is not in the cache under key. An empty uid means any object.
func (l *loop[T]) gone(key kube.Key, uid types.UID) bool {
	if uid == "" {
		return !l.informer.Has(key)
	}
	kept, found := l.informer.Untyped().Encoded(key)
	return !found || kept.UID != uid
}

func (l *loop[T]) timerFired(key kube.Key, name string) {
	if l.informer.Has(key) {
		l.enqueuer.addOwn(key, Cause{Type: CauseTimer, Detail: name}, queueOptions{EndBackoff: true})
	}
}

// run runs the controller until ctx ends or a source fails. It returns when everything that it started has ended.
func (l *loop[T]) run(ctx context.Context, entered func(Phase)) error {
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
	informers := append([]informer.Any{l.informer}, l.config.Reads...)
	for _, inf := range informers {
		defer inf.Join(background)()
	}
	unsubscribe := l.informer.Subscribe(l.changed)
	defer unsubscribe()
	l.sources.begin(intake, background, stopIntake)
	defer l.sources.leave()
	defer l.consistency.stop()
	defer l.timers.end()
	var others sync.WaitGroup
	watch, stopWatch := context.WithCancel(background)
	defer stopWatch()
	synced := l.waitSynced(intake, informers)
	if synced == nil {
		entered(PhaseRunning)
		l.logger.InfoContext(ctx, "controller started", "objects", l.informer.Len(), "workers", l.config.Workers)
		l.works.Store(true)
		l.pool.start(workCtx)
		others.Go(func() { // waited for below
			if _, ok := l.feeder.feedNext(intake); ok { // the first pass
				others.Go(func() { l.resync(intake) }) // waited for below
				l.feeder.feed(intake)
			}
		})
		others.Go(func() { l.watchdog.watch(watch, workCtx) }) // waited for below
	} else if intake.Err() == nil {
		// An *informer.Informer never fails before ctx ends.
		synced = fmt.Errorf("controller %q: wait for the informers in Config.Reads: %w", l.config.Name, usercode.Error(synced))
		stopIntake()
	} else {
		synced = nil // the end of ctx is not an error
	}
	<-intake.Done()
	entered(PhaseDraining)
	l.pool.end()
	if l.config.Shutdown.DrainQueue {
		l.queue.Drain()
	} else {
		l.queue.ShutDown()
	}
	// The drain comes before the wait for the sources: a source that ends slowly must not delay the cancellation of
	// handlers.
	l.drain(ctx, cancelWork)
	stopWatch()
	others.Wait()
	return errors.Join(synced, l.sources.wait())
}

// waitSynced waits until all informers, including those of the sources, have synced, or ctx ends.
func (l *loop[T]) waitSynced(ctx context.Context, informers []informer.Any) error {
	// The informers log failures themselves, but do not log a list that is only slow.
	slow := time.AfterFunc(slowSync, func() {
		l.logger.InfoContext(ctx, "controller waits for its first list", "state", readyAll(append(slices.Clone(informers), l.sources.reads()...)))
	})
	defer slow.Stop()
	for _, inf := range informers {
		if err := inf.WaitSynced(ctx); err != nil {
			return err
		}
	}
	return l.sources.waitSynced(ctx)
}

// drain waits for the workers, and cancels their handlers when the drain time is over. Loss of leadership cancels
// them independently: see run.
func (l *loop[T]) drain(ctx context.Context, cancelWork context.CancelCauseFunc) {
	ended := make(chan struct{})
	go func() { // ends with the workers, which this function waits for
		l.pool.wait()
		close(ended)
	}()
	timeout := time.NewTimer(max(l.config.Shutdown.DrainTimeout, 0))
	defer timeout.Stop()
	// From here on, no key that is left in a draining queue is started.
	defer l.queue.ShutDown()
	if errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
		l.queue.ShutDown()
		<-ended
		return
	}
	select {
	case <-ended:
		return
	case <-leadership.Lost(ctx):
		l.queue.ShutDown()
	case <-timeout.C:
		l.queue.ShutDown()
		cancelWork(errDrained)
		if l.config.Shutdown.DrainTimeout > 0 {
			l.logger.WarnContext(ctx, "handlers are cancelled: the drain time is over",
				"drainTimeout", l.config.Shutdown.DrainTimeout, "handlers", l.queue.Stats().Processing)
		}
	}
	<-ended
}

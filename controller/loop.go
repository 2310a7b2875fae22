package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// Causes of handlers' contexts.
var (
	errDrained = errors.New("the drain time is over")
	errEnded   = errors.New("the controller has ended")
)

// slowSync is after how long a first list that is not there yet is logged.
const slowSync = 5 * time.Second

// loop is one term of a controller: its queue, its workers, and what it remembers of
// keys that fail.
type loop[T kube.Object] struct {
	// Immutable after newLoop.
	config   Config[T]
	informer *informer.Informer[T]
	queue    *workqueue.Queue[kube.Key]
	sources  *sources
	logger   *slog.Logger

	works atomic.Bool // workers have been started, or are about to be
	first firstPass

	mu       sync.Mutex
	failures map[kube.Key]failures // guarded by mu; of keys that have any
	terminal map[kube.Key]struct{} // guarded by mu; keys that failed for good at their last run
}

// failures is what is remembered of a key that fails.
type failures struct {
	inARow int
	stack  bool // the stack of a panic was logged
}

func newLoop[T kube.Object](config Config[T], inf *informer.Informer[T]) *loop[T] {
	l := &loop[T]{
		config:   config,
		informer: inf,
		queue:    workqueue.New[kube.Key](),
		logger:   config.Logger.With("controller", config.Name),
		failures: map[kube.Key]failures{},
		terminal: map[kube.Key]struct{}{},
	}
	l.first.room, l.first.ran = make(chan struct{}, 1), map[kube.Key]struct{}{}
	l.first.active.Store(true)
	l.sources = newSources(config.Name, l.triggered, config.Sources)
	return l
}

// run works until ctx ends or a source fails, and returns when everything that it
// started has ended.
func (l *loop[T]) run(ctx context.Context, entered func(Phase)) error {
	// The informer and the handlers outlive ctx: handlers that drain read the cache.
	background := context.WithoutCancel(ctx)
	workCtx, cancelWork := context.WithCancelCause(background)
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	defer cancelWork(errEnded)

	// Joined before anything else, so that what follows is about one session of each,
	// whatever their other users do; left last, in the deferred order.
	informers := append([]Readable{l.informer}, l.config.Reads...)
	for _, inf := range informers {
		defer inf.Join(background)()
	}
	unsubscribe := l.informer.Subscribe(l.changed)
	defer unsubscribe()
	l.sources.begin(intake, background, stopIntake)
	defer l.sources.leave()
	var workers, walks sync.WaitGroup
	synced := l.waitSynced(intake, informers)
	if synced == nil {
		entered(PhaseRunning)
		l.logger.InfoContext(ctx, "controller works", "objects", l.informer.Len(), "workers", l.config.Workers)
		l.works.Store(true)
		for range l.config.Workers {
			workers.Go(func() { l.work(workCtx, &workers) }) // waited for by drain
		}
		walks.Go(func() { l.walk(intake) }) // waited for below
	}
	<-intake.Done()
	entered(PhaseDraining)
	l.queue.ShutDown()
	// Sources are joined after the drain: one that is slow to end must not delay the
	// cancelling of handlers.
	l.drain(ctx, &workers, cancelWork)
	walks.Wait()
	return l.sources.wait()
}

// waitSynced waits until all informers, and those of the sources, have listed, or ctx ends.
func (l *loop[T]) waitSynced(ctx context.Context, informers []Readable) error {
	// What fails is logged by the informers; a list that is only slow is not.
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

// drain waits for the workers, and cancels their handlers when the drain time is over
// or leadership is lost.
func (l *loop[T]) drain(ctx context.Context, workers *sync.WaitGroup, cancelWork context.CancelCauseFunc) {
	ended := make(chan struct{})
	go func() { // ends with the workers, whom this function waits for
		workers.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(max(l.config.DrainTimeout, 0))
	defer timeout.Stop()
	if errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
		cancelWork(kube.ErrLeadershipLost)
		<-ended
		return
	}
	select {
	case <-ended:
		return
	case <-kube.LeadershipLost(ctx):
		cancelWork(kube.ErrLeadershipLost)
	case <-timeout.C:
		cancelWork(errDrained)
		if l.config.DrainTimeout > 0 {
			l.logger.WarnContext(ctx, "handlers are cancelled: the drain time is over",
				"drainTimeout", l.config.DrainTimeout, "handlers", l.queue.Stats().Taken)
		}
	}
	<-ended
}

// changed is the informer's subscriber.
func (l *loop[T]) changed(c informer.Change) {
	// What is listed before the controller works is in the store when the first pass walks it.
	if c.Type == informer.Listed && !l.works.Load() {
		return
	}
	if l.matters(c) {
		if c.Type == informer.Listed {
			l.first.enqueued(c.Key)
		}
		l.enqueue(c)
		return
	}
	if c.Type == informer.Deleted {
		l.hopeless(c.Key, false) // no run will find that it is gone
	}
}

// enqueue adds the key of a change.
func (l *loop[T]) enqueue(c informer.Change) {
	switch c.Type {
	case informer.Listed:
		l.add(c.Key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseListed}, Priority: workqueue.PriorityLow})
	case informer.Added:
		l.add(c.Key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseAdded}})
	case informer.Updated:
		l.add(c.Key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated}})
	case informer.Deleted:
		l.add(c.Key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseDeleted}})
	}
}

// triggered is what sources call.
func (l *loop[T]) triggered(key kube.Key, detail string) {
	l.add(key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseTriggered, Detail: detail}})
}

func (l *loop[T]) add(key kube.Key, o workqueue.Options) bool {
	added := l.queue.Add(key, o)
	if added && l.config.Metrics != nil {
		l.config.Metrics.Queued(l.config.Name, o.Cause.Type)
	}
	return added
}

// work is one worker.
func (l *loop[T]) work(ctx context.Context, workers *sync.WaitGroup) {
	returned := false
	defer func() {
		if !returned {
			// A handler has called runtime.Goexit, as t.FailNow does: this goroutine ends, and
			// another takes its place.
			workers.Go(func() { l.work(ctx, workers) }) // waited for by drain
		}
	}()
	for {
		item, ok := l.queue.Get()
		if !ok {
			break
		}
		l.handle(ctx, item)
	}
	returned = true
}

// errNoReturn is the error of a handler that has not returned.
var errNoReturn = errors.New("the handler ended its goroutine (runtime.Goexit; t.FailNow does that)")

// handle runs one key and decides what follows.
func (l *loop[T]) handle(ctx context.Context, item workqueue.Item[kube.Key]) {
	run := &Run{
		Controller: l.config.Name,
		Key:        item.Key,
		Causes:     item.Causes,
		Attempt:    l.failuresOf(item.Key),
		Started:    time.Now(),
		logger:     l.logger,
	}
	runCtx, cancel := context.WithValue(ctx, runKey{}, run), context.CancelFunc(func() {})
	if l.config.Timeout > 0 {
		runCtx, cancel = context.WithTimeout(runCtx, l.config.Timeout)
	}
	err := errNoReturn
	// Deferred, because the handler might not return.
	defer func() {
		timedOut := errors.Is(runCtx.Err(), context.DeadlineExceeded)
		cancel()
		l.finish(runCtx, run, item.Wait, err, timedOut, ctx.Err() != nil)
		// Only now: what was added for the key is filed before the key can be taken again,
		// so that it merges with what came in meanwhile.
		l.queue.Done(item.Key)
		l.first.ended(l.queued)
	}()
	l.first.began(item.Key, item.Causes)
	err = l.call(runCtx, item.Key)
}

// finish measures and logs a run, and enqueues the next one.
func (l *loop[T]) finish(ctx context.Context, run *Run, wait time.Duration, err error, timedOut, cancelled bool) {
	duration := time.Since(run.Started)
	outcome, requeue := outcomeOf(err, timedOut, cancelled)
	if l.config.Metrics != nil {
		l.config.Metrics.Handled(l.config.Name, Handled{Outcome: outcome, Attempt: run.Attempt, Wait: wait, Duration: duration})
	}
	if l.logger.Enabled(ctx, slog.LevelDebug) {
		run.Logger().DebugContext(ctx, "handled", "outcome", string(outcome), "duration", duration, "causes", run.Causes.String(), "attempt", run.Attempt)
	}
	l.follow(ctx, run, outcome, requeue, err)
}

// follow enqueues the next run, as the outcome of this one demands.
func (l *loop[T]) follow(ctx context.Context, run *Run, outcome Outcome, requeue *RequeueError, err error) {
	switch outcome {
	case OutcomeSuccess:
		l.forget(run.Key)
	case OutcomeRequeue:
		l.forget(run.Key)
		l.add(run.Key, workqueue.Options{
			Cause: workqueue.Cause{Type: workqueue.CauseRequeue, Detail: requeue.Reason},
			After: requeue.After,
		})
	case OutcomeError, OutcomeTimeout, OutcomePanic:
		l.retry(ctx, run, outcome, err)
	case OutcomeTerminal:
		l.forget(run.Key)
		// Without an object there is no resync to hold back, and no end of it to hear of.
		l.hopeless(run.Key, l.informer.Has(run.Key))
		run.Logger().ErrorContext(ctx, "handler failed for good: not tried again until the object changes", "error", err)
	case OutcomeCancelled:
		l.forget(run.Key)
		run.Logger().InfoContext(ctx, "handler was cancelled: this process is to work no longer", "error", err)
	case OutcomeGone:
		l.forget(run.Key)
	}
}

// retry enqueues a failed key again, or gives it up.
func (l *loop[T]) retry(ctx context.Context, run *Run, outcome Outcome, err error) {
	var panicked *PanicError
	errors.As(err, &panicked)
	inARow, logStack := l.failed(run.Key, panicked != nil)
	if logStack {
		// Once: the retries of the same panic would only repeat it.
		run.Logger().ErrorContext(ctx, "handler panicked", "error", err, "stack", string(panicked.Stack))
	}
	attrs := []any{"error", err, "outcome", string(outcome), "attempt", run.Attempt, "causes", run.Causes.String()}
	if l.config.Retry.exhausted(inARow) {
		l.forget(run.Key)
		run.Logger().ErrorContext(ctx, "handler failed and is given up until the object changes or is resynced", append(attrs, "retries", inARow-1)...)
		return
	}
	delay := l.config.Retry.delay(inARow)
	if l.queue.Stats().Down {
		run.Logger().WarnContext(ctx, "handler failed while the controller ends: the next start tries again", attrs...)
		return
	}
	l.add(run.Key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseRetry}, After: delay})
	run.Logger().WarnContext(ctx, "handler failed, will try again", append(attrs, "after", delay)...)
}

// call calls the handler, or the reconciler, and turns a panic into an error.
func (l *loop[T]) call(ctx context.Context, key kube.Key) (err error) {
	defer RecoverPanic(&err)
	if l.config.Reconciler != nil {
		return l.config.Reconciler.Reconcile(ctx, key)
	}
	obj, found, err := l.informer.Get(key)
	switch {
	case err != nil:
		return fmt.Errorf("read %s from the cache: %w", key, err)
	case !found:
		return errGone
	}
	return l.config.Handler.Handle(ctx, obj)
}

func (l *loop[T]) failuresOf(key kube.Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures[key].inARow
}

// failed counts a failure. It returns how many there are in a row, and whether the stack
// of this one, a panic, is to be logged.
func (l *loop[T]) failed(key kube.Key, panicked bool) (inARow int, logStack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.terminal, key)
	f := l.failures[key]
	f.inARow++
	logStack = panicked && !f.stack
	f.stack = f.stack || panicked
	l.failures[key] = f
	return f.inARow, logStack
}

func (l *loop[T]) forget(key kube.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failures, key)
	delete(l.terminal, key)
}

// hopeless remembers whether key has failed for good.
func (l *loop[T]) hopeless(key kube.Key, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is {
		l.terminal[key] = struct{}{}
	} else {
		delete(l.terminal, key)
	}
}

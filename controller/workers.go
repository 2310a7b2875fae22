package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// idleAfter is the time after which a worker that waits for a key is idle: if many keys are ready by then, group limits
// may prevent it from taking any of them.
const idleAfter = 100 * time.Millisecond

// worker takes keys from the queue and runs them, one at a time.
type worker struct {
	goroutine detect.Goroutine
	run       atomic.Pointer[running] // current run; nil: the worker waits for a key
	// waitsSince is the time since when the worker has waited for a key, in nanoseconds of Unix time; 0: it is not
	// waiting.
	waitsSince atomic.Int64
	replaced   atomic.Bool // its handler was stuck, and another worker has replaced it
}

// startWorker starts a worker. The drain waits for it.
func (l *loop[T]) startWorker(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addWorker(ctx)
}

// addWorker is startWorker with mu held.
func (l *loop[T]) addWorker(ctx context.Context) {
	w := &worker{}
	l.workers[w] = struct{}{}
	l.working.Go(func() { l.work(ctx, w) }) // waited for by drain
}

// work is the goroutine of one worker.
func (l *loop[T]) work(ctx context.Context, w *worker) {
	w.goroutine = detect.CurrentGoroutine()
	// Goroutines that handlers start inherit the label. kube uses the label to detect their writes that do not use
	// the run's context.
	ctx = pprof.WithLabels(ctx, pprof.Labels(leadership.ControllerLabel, l.config.Name))
	pprof.SetGoroutineLabels(ctx)
	returned := false
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.workers, w)
		if !returned && !w.replaced.Load() {
			// A handler called runtime.Goexit, as t.FailNow does: this goroutine ends, and another worker replaces
			// it.
			l.addWorker(ctx)
		}
		l.left.Broadcast()
	}()
	for !w.replaced.Load() || l.takePlace(w) {
		w.waitsSince.Store(time.Now().UnixNano())
		item, ok := l.queue.Get()
		w.waitsSince.Store(0)
		if !ok {
			break
		}
		if !l.heldBack(ctx, item.Key) {
			l.handle(ctx, w, item)
		}
	}
	returned = true
}

// takePlace lets a replaced worker continue in a drain: others may have ended before its handler returned, and its key
// may have been added again. It waits until another worker has ended. Before a drain it returns false.
func (l *loop[T]) takePlace(w *worker) bool {
	if !l.queue.Stats().Down {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	working := func() (n int) {
		for other := range l.workers {
			if !other.replaced.Load() {
				n++
			}
		}
		return n
	}
	for working() >= l.config.Workers {
		l.left.Wait()
	}
	w.replaced.Store(false)
	return true
}

// heldBack returns a key that must not run yet to the queue.
func (l *loop[T]) heldBack(ctx context.Context, key kube.Key) bool {
	held, late := l.consistency.hold(key)
	if len(late) > 0 {
		l.writesUnseen(ctx, key, late, held)
	}
	if held {
		return true
	}
	if pause := l.paused(key); pause > 0 {
		if l.queue.Stats().Down {
			l.queue.Done(key) // a drain does not wait for a hot loop: the next start handles the key
		} else {
			l.queue.Hold(key, pause)
		}
		return true
	}
	return false
}

// errNoReturn is the error of a handler that did not return.
var errNoReturn = errors.New("the handler ended its goroutine (runtime.Goexit; t.FailNow does that)")

// handle runs one key and determines what follows.
func (l *loop[T]) handle(ctx context.Context, w *worker, item workqueue.Item[kube.Key, Cause]) {
	r := l.begin(item)
	w.run.Store(r)
	runCtx, cancel := context.WithValue(kube.ObserveCalls(ctx, r), runKey{}, r), context.CancelFunc(func() {})
	if l.config.Timeout > 0 {
		runCtx, cancel = context.WithTimeout(runCtx, l.config.Timeout)
	}
	err := errNoReturn
	// Deferred, because the handler might not return.
	defer func() {
		timedOut := errors.Is(runCtx.Err(), context.DeadlineExceeded)
		cancel()
		l.finish(runCtx, r, err, timedOut, ctx.Err() != nil)
		w.run.Store(nil)
		if r.stuck.Load() {
			l.problems.endOf(item.Key, ProblemStuck)
			r.log().InfoContext(runCtx, "the handler that was stuck has returned", "after", time.Since(r.run.Started).Round(time.Millisecond))
		}
		// Done must come last: the keys added by finish are then in the queue before another worker can take the key,
		// and merge with those added during the run.
		l.queue.Done(item.Key)
		l.feeder.runEnded()
	}()
	l.feeder.runStarted(item.Key)
	// Replaced here, so that the code below calls no methods of an error that panic or do not return, and keeps no
	// text of unlimited size.
	err = usercode.Error(l.call(runCtx, r))
}

// begin creates the record of a run.
func (l *loop[T]) begin(item workqueue.Item[kube.Key, Cause]) *running {
	r := &running{logger: l.logger, timers: &l.timers, writer: l, cut: l.answers}
	failed := l.failedBefore(r, item.Key)
	r.record = &record{run: RunRecord{
		Controller: l.config.Name,
		Key:        item.Key,
		Causes:     Causes{item.Causes},
		Attempt:    failed.inARow,
		Wait:       item.Wait,
		Held:       item.Held,
		Started:    time.Now(),
		Staleness:  l.informer.Untyped().Staleness(),
	}}
	if failed.inARow > 0 {
		r.run.AttemptClass = failed.class
	}
	l.history.begin(r.record)
	return r
}

// failedBefore returns the failures of the object that a run will be about. Failures of an earlier object of the same
// name are removed.
func (l *loop[T]) failedBefore(r *running, key kube.Key) failing {
	if !l.failures.some() {
		return failing{}
	}
	failed := l.failures.of(key)
	if failed.inARow == 0 && !failed.stalled && !failed.terminal {
		return failed
	}
	if end := l.ends.first(key); end != nil {
		r.uid = end.state.UID
	} else {
		l.readIdentity(r, key)
	}
	if failed.uid == r.uid {
		return failed
	}
	l.forgetFailures(key)
	return failing{}
}

// forgetFailures removes the failures of key, and ends the problems about them.
func (l *loop[T]) forgetFailures(key kube.Key) {
	l.failures.forget(key)
	l.problems.endOf(key, ProblemFailing, ProblemStalled, ProblemUnseenWrite)
}

// readIdentity sets the uid and generation of r to those of the object that the informer shows under key.
func (l *loop[T]) readIdentity(r *running, key kube.Key) {
	r.uid, r.generation = "", 0
	if kept, found := l.informer.Untyped().Encoded(key); found {
		r.uid, r.generation = kept.UID, kept.Generation
	}
}

// call calls the handler or the reconciler, and converts a panic into an error.
func (l *loop[T]) call(ctx context.Context, r *running) (err error) {
	defer RecoverPanic(&err)
	key := r.run.Key
	ended, err := l.endOf(ctx, r)
	if err != nil {
		return err
	}
	if l.config.Reconciler != nil {
		if !l.informer.Has(key) && l.redirect(key, r.run.Causes) {
			return errGone
		}
		// Before the call: the object that the reconciler reads may be newer than this, but never older.
		l.readIdentity(r, key)
		r.mu.Lock()
		r.timersOf = r.uid
		r.mu.Unlock()
		return l.config.Reconciler(ctx, key)
	}
	obj, found, err := l.informer.Get(key)
	switch {
	case err != nil:
		l.readIdentity(r, key)
		return fmt.Errorf("read %s from the cache: %w", key, err)
	case !found && ended:
		return nil
	case !found:
		l.redirect(key, r.run.Causes)
		return errGone
	}
	r.uid, r.generation = obj.GetUID(), obj.GetGeneration()
	r.mu.Lock()
	r.run.Decode, r.run.UID, r.run.Generation = time.Since(r.run.Started), obj.GetUID(), obj.GetGeneration()
	r.timersOf = obj.GetUID()
	r.mu.Unlock()
	return l.config.Handler(ctx, obj)
}

// wrote implements writer: it tracks the write until the informers show it.
func (l *loop[T]) wrote(ctx context.Context, r *running, call kube.Call, was *before, a answer) WriteOutcome {
	seen, ok := writeOf(call, a)
	kind := call.Kind.GroupKind()
	if r.finished.Load() {
		return WriteDone // by a goroutine that has outlived its handler: nothing waits for this write
	}
	w := ownWrite{Write: seen, kind: kind, created: call.Status == http.StatusCreated && call.Subresource == ""}
	if !ok || kind.Kind == "" {
		return WriteDone
	}
	if was != nil && was.object.UID == w.UID && was.object.ResourceVersion == w.ResourceVersion && call.Verb != "delete" {
		return WriteNoChange
	}
	if w.Deleted {
		// Without a version, an informer that does not show the object yet would seem to show its deletion.
		w.ResourceVersion = lastVersion(call, was, a)
	}
	content := l.contentOnce(kind)
	w.base = baseOf(call, was, a, content)
	if a.kind == call.Kind {
		w.whole = a.kind
	}
	echo, forgiven, noted := l.consistency.wrote(r, w, !l.config.OwnWrites.Handle)
	if !noted {
		return WriteDone
	}
	if forgiven {
		l.enqueuer.skip(SkipOwnWrite, r.run.Key, echo)
	}
	switch {
	case w.Deleted:
		l.hot.ObjectGone(r.run.Key, kind, w.Key)
	case a.object != nil:
		l.wroteAgain(ctx, r, kind, w.Key, was, a.object, content)
	}
	return WriteDone
}

// watched returns the informers of kind that the controller runs.
func (l *loop[T]) watched(kind schema.GroupKind) (watched []cache.Informer) {
	for _, inf := range append([]informer.Any{l.informer}, append(l.config.Reads, l.sources.reads()...)...) {
		if inf.Kind().GroupKind() == kind {
			watched = append(watched, inf.Untyped())
		}
	}
	return watched
}

// finish measures and logs a run, and enqueues the next one.
func (l *loop[T]) finish(ctx context.Context, r *running, err error, timedOut, cancelled bool) {
	now := time.Now()
	outcome, requeue := outcomeOf(err, timedOut, cancelled)
	l.consistency.ended(r)
	next := l.follow(ctx, r, outcome, requeue, err)
	if pause := l.pauseAfter(r.run.Key); pause > 0 {
		next.why += fmt.Sprintf(", not before %s have passed (hot loop)", rounded(pause))
	}
	r.mu.Lock()
	r.run.Duration, r.run.Outcome, r.run.NextRun, r.run.NextReason = now.Sub(r.run.Started), outcome, next.at, next.why
	if outcome.Failed() {
		r.run.Error = err.Error()
	}
	handled := handledOf(&r.run)
	r.mu.Unlock()
	if l.config.Metrics != nil {
		l.config.Metrics.RunEnded(l.config.Name, handled)
	}
	if l.logger.Enabled(ctx, slog.LevelDebug) {
		run := r.snapshot()
		r.log().DebugContext(ctx, "handled", "outcome", string(outcome), "duration", run.Duration,
			"causes", run.Causes.String(), "attempt", run.Attempt, "writes", len(run.Writes)+run.WritesDropped, "next", next.why)
	}
}

// isIdle reports whether a worker is idle.
func (l *loop[T]) isIdle() bool {
	latest := time.Now().Add(-idleAfter).UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.workers {
		if since := w.waitsSince.Load(); since != 0 && since <= latest {
			return true
		}
	}
	return false
}

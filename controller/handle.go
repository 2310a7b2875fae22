package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// heldBack returns a key that must not run yet to the queue.
func (l *loop[T]) heldBack(ctx context.Context, key kube.Key) bool {
	held, unseen := l.ownWrites.Hold(key)
	if len(unseen) > 0 {
		l.writes.reportUnseen(ctx, key, unseen, held)
	}
	if held || l.interrupted.hold(key) {
		return true
	}
	if pause := l.hot.paused(key); pause > 0 {
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

// handle runs a key that worker w has taken, and determines what follows. It returns false if the key was held back.
func (l *loop[T]) handle(ctx context.Context, w *worker, item queueItem) (began bool) {
	if l.heldBack(ctx, item.Key) {
		return false
	}
	if waited, found := l.feeder.runStarted(item.Key); found {
		item.Causes = item.Causes.Clone()
		item.Causes.AddAll(waited.list, (*Cause).merge)
	}
	r := l.begin(item)
	if l.observeRun != nil { // the arguments are allocated as interfaces
		l.observeRun(l.config.Name, item.Key, r.run.Causes)
	}
	w.setRun(r)
	runCtx, cancel := context.WithValue(kube.ObserveCalls(ctx, r), runKey{}, r), context.CancelFunc(func() {})
	if l.config.Timeout > 0 {
		runCtx, cancel = context.WithTimeout(runCtx, l.config.Timeout)
	}
	slot := l.interrupted.started(item.Key)
	err := errNoReturn
	// Deferred, because the handler might not return.
	defer func() {
		if r.panicking {
			return
		}
		timedOut := errors.Is(runCtx.Err(), context.DeadlineExceeded)
		cancel()
		outcome := l.finish(runCtx, r, err, timedOut, ctx.Err() != nil)
		w.setRun(nil)
		if r.stuck.Load() {
			l.problems.endOf(item.Key, ProblemStuck)
			r.log().InfoContext(runCtx, "the handler that was stuck has returned", "after",
				time.Since(r.run.Started).Round(time.Millisecond))
		}
		l.interrupted.ended(item.Key, slot, outcome)
		// Done must come last: the keys added by finish are then in the queue before another worker can take the key,
		// and merge with those added during the run.
		l.queue.Done(item.Key)
		l.feeder.runEnded()
	}()
	// Replaced here, so that the code below calls no methods of an error that panic or do not return, and keeps no
	// text of unlimited size.
	err = usercode.Error(l.call(runCtx, r))
	return true
}

// begin creates the record of a run.
func (l *loop[T]) begin(item queueItem) *running {
	r := &running{
		logger: l.logger, derive: l.config.RunLogger, timers: l.timers, writes: l.writes,
		own: ownwrites.Run{Tracker: l.ownWrites, Key: item.Key},
	}
	failed := l.schedule.failedBefore(r, item.Key)
	r.record = &record{run: RunRecord{
		Controller: l.config.Name,
		Key:        item.Key,
		Causes:     Causes{item.Causes},
		Attempt:    failed.consecutive,
		Wait:       item.Wait,
		Held:       item.Held,
		Started:    time.Now(),
		Staleness:  l.own.Untyped().Staleness(),
	}}
	if failed.consecutive > 0 {
		r.run.AttemptClass = failed.class
	}
	l.history.begin(r.record)
	return r
}

// call calls the handler or the reconciler, and converts a panic into an error.
func (l *loop[T]) call(ctx context.Context, r *running) (err error) {
	if l.config.PanicsEndProcess {
		defer r.repanic()
	} else {
		defer recoverPanic(&err)
	}
	key := r.run.Key
	ended, err := l.callDeleted(ctx, r)
	if err != nil {
		return err
	}
	if l.config.Reconciler != nil {
		if !l.own.Has(key) && l.intake.redirect(key, r.run.Causes) {
			return errGone
		}
		// Before the call: the object that the reconciler reads may be newer than this, but never older.
		r.identify(l.own, key)
		r.mu.Lock()
		r.timersOf = r.uid
		r.mu.Unlock()
		return l.config.Reconciler(ctx, key)
	}
	obj, found, err := l.informer.Get(key)
	switch {
	case err != nil:
		r.identify(l.informer, key)
		return fmt.Errorf("read %s from the cache: %w", key, err)
	case !found && ended:
		return nil
	case !found:
		l.intake.redirect(key, r.run.Causes)
		return errGone
	}
	r.uid, r.generation = obj.GetUID(), obj.GetGeneration()
	r.mu.Lock()
	r.run.Decode, r.run.UID, r.run.Generation = time.Since(r.run.Started), obj.GetUID(), obj.GetGeneration()
	r.timersOf = obj.GetUID()
	r.mu.Unlock()
	return l.config.Handler(ctx, obj)
}

// callDeleted calls Config.Deleted for each deleted object of the key, in order of their deletion. called is false if
// the key has no deleted object.
func (l *loop[T]) callDeleted(ctx context.Context, r *running) (called bool, err error) {
	key := r.run.Key
	if l.config.Deleted == nil {
		return false, nil
	}
	for end := l.ends.first(key); end != nil; end = l.ends.first(key) {
		called, r.uid, r.ending = true, end.state.UID, end // before the call, because Deleted may panic
		last, err := cache.Decode[T](l.informer.Untyped(), end.state)
		if err != nil {
			return true, fmt.Errorf("read the last state of %s: %w", key, err)
		}
		if err := usercode.Error(l.config.Deleted(ctx, last, end.stale)); err != nil {
			return true, fmt.Errorf("deleted: %w", err)
		}
		l.ends.remove(key, end)
		r.uid, r.ending = "", nil
	}
	return called, nil
}

// watched returns the informers of kind that the controller runs.
func (l *loop[T]) watched(kind schema.GroupKind) (watched []cache.Informer) {
	for _, inf := range withOwn(l.informer, append(l.sources.reads(), l.config.Reads...)) {
		if inf.Kind().GroupKind() == kind {
			watched = append(watched, inf.Untyped())
		}
	}
	return watched
}

// finish measures and logs a run, and enqueues the next one. It returns the run's outcome.
func (l *loop[T]) finish(ctx context.Context, r *running, err error, timedOut, cancelled bool) Outcome {
	now := time.Now()
	outcome, requeue := outcomeOf(err, timedOut, cancelled)
	r.own.End()
	next := l.schedule.follow(ctx, r, outcome, requeue, err)
	if pause := l.hot.pauseAfter(r.run.Key); pause > 0 {
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
			"causes", run.Causes.String(), "attempt", run.Attempt, "writes", len(run.Writes)+run.WritesDropped, "next",
			next.why)
	}
	return outcome
}

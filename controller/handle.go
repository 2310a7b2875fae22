package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// errNoReturn is the error of a handler that did not return.
var errNoReturn = errors.New("the handler ended its goroutine (runtime.Goexit; t.FailNow does that)")

// handle runs a key that worker w has taken, and determines what follows. It returns false if the key was held back.
func (l *loop[T]) handle(ctx context.Context, w *worker, item queueItem) (began bool) {
	if l.held(ctx, item.Key) {
		return false
	}
	if waited, found := l.feeder.runStarted(item.Key); found {
		item.Causes = item.Causes.Clone()
		item.Causes.AddAll(waited.list, (*Cause).merge)
	}
	r := l.begin(item)
	w.current.Store(r)
	runCtx, cancel := observers.WithRunning(kube.ObserveCalls(ctx, r), r), context.CancelFunc(func() {})
	if l.config.Timeout > 0 {
		runCtx, cancel = context.WithTimeout(runCtx, l.config.Timeout)
	}
	err := errNoReturn
	// Deferred, because the handler might not return.
	defer func() {
		if r.panicking {
			return
		}
		timedOut := errors.Is(runCtx.Err(), context.DeadlineExceeded)
		cancel()
		l.finish(runCtx, r, err, timedOut, ctx.Err() != nil)
		w.current.Store(nil)
		l.observers.each(func(o observer) { o.ended(runCtx, r) })
		// Done must come last: the keys added by finish are then in the queue before another worker can take the key,
		// and merge with those added during the run.
		l.queue.Done(item.Key)
		l.feeder.throttle.runEnded()
	}()
	// Replaced here, so that the code below calls no methods of an error that panic or do not return, and keeps no
	// text of unlimited size.
	err = usercode.Error(l.call(runCtx, r))
	return true
}

// begin creates the record of a run.
func (l *loop[T]) begin(item queueItem) *running {
	r := &running{logger: l.logger, derive: l.config.RunLogger, timers: l.timers, observers: l.observers}
	failed := l.schedule.failedBefore(r, item.Key)
	r.record = &record{run: RunRecord{
		Controller: l.config.Name,
		Key:        item.Key,
		Causes:     Causes{item.Causes},
		Attempt:    failed.consecutive,
		Wait:       item.Wait,
		Held:       item.Held,
		Started:    time.Now(),
		Staleness:  cache.Of(l.own).Staleness(),
	}}
	if failed.consecutive > 0 {
		r.run.AttemptClass = failed.class
	}
	l.observers.each(func(o observer) { o.began(r) })
	return r
}

// call calls the handler or the reconciler, and converts a panic into an error.
func (l *loop[T]) call(ctx context.Context, r *running) (err error) {
	defer r.recoverPanic(&err, l.config.Runs.PanicsEndProcess)
	key := r.run.Key
	ended, err := l.callDeleted(ctx, r)
	if err != nil {
		return err
	}
	if l.config.Reconciler != nil {
		return l.callReconciler(ctx, r)
	}
	obj, found, err := l.informer.Get(key)
	switch {
	case err != nil:
		r.identify(l.own, key)
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
	r.owner = detect.Owner{UID: r.uid, Generation: r.generation}
	r.mu.Unlock()
	before := l.unwritten.before(obj)
	err = l.config.Handler(ctx, obj)
	if before != nil && !OutcomeOf(err).Failed() {
		l.unwritten.after(ctx, r, l.own.Kind().Kind, before, obj)
	}
	return err
}

// callReconciler calls the Reconciler.
func (l *loop[T]) callReconciler(ctx context.Context, r *running) error {
	key := r.run.Key
	if !l.own.Has(key) && l.intake.redirect(key, r.run.Causes) {
		return errGone
	}
	// Before the call: the object that the reconciler reads may be newer than this, but never older.
	r.identify(l.own, key)
	r.mu.Lock()
	r.owner = detect.Owner{UID: r.uid, Generation: r.generation}
	r.mu.Unlock()
	return l.config.Reconciler(ctx, key)
}

// callDeleted calls Config.Deleted for each deleted object of the key, in order of their deletion. called is false if
// the key has no deleted object.
func (l *loop[T]) callDeleted(ctx context.Context, r *running) (called bool, err error) {
	key := r.run.Key
	if l.config.Deleted == nil {
		return false, nil
	}
	for end := l.ends.first(key); end != nil; end = l.ends.first(key) {
		if end.left {
			exists, err := cache.Of(l.informer).Exists(ctx, key, end.state.UID)
			if err != nil {
				return called, fmt.Errorf("determine whether %s was deleted: %w", key, err)
			}
			if end.left = false; exists {
				l.ends.remove(key, end)
				continue
			}
		}
		called, r.uid, r.ending = true, end.state.UID, end // before the call, because Deleted may panic
		last, err := cache.Decode[T](cache.Of(l.informer), end.state)
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
			watched = append(watched, cache.Of(inf))
		}
	}
	return watched
}

// finish enqueues the next run, and sets the result in the run's record.
func (l *loop[T]) finish(ctx context.Context, r *running, err error, timedOut, cancelled bool) {
	now := time.Now()
	outcome, requeue := outcomeOf(err, timedOut, cancelled)
	next := l.schedule.follow(ctx, r, outcome, requeue, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Duration, r.run.Outcome, r.run.NextRun, r.run.NextReason = now.Sub(r.run.Started), outcome, next.at, next.why
	if outcome.Failed() {
		r.run.Error = err.Error()
	}
}

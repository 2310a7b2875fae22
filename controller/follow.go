package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/controller/internal/resync"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// schedule decides what follows a run: nothing, a requeue, a retry, or giving up. It also removes what is kept of a key
// when its object has ended.
//
// Invariants:
//   - A failed run is retried, unless its class has no retries left, its error is terminal, or the queue is shut down.
//   - The failures of a key belong to one object: another object of the same name starts with none.
//   - Nothing is kept of a key without an object, except states for Config.Deleted, and failures that are retried.
type schedule struct {
	// Immutable after newLoop. The states have locks of their own.
	enqueuer  *enqueuer
	queue     *queue
	objects   objects
	rules     *retryrules.Rules
	observers observerList
	logger    *slog.Logger
	repeats   *detect.Repeats
	failures  *failures
	successes *resync.Successes
	timers    *timers
	ends      *ends

	endBackoffIf func(Cause) bool
	mayHelp      func(Cause) bool // nil if the program determines what ends a backoff
	keepsEnds    bool             // Config.Deleted is set
	reconciles   bool             // Config.Reconciler is set: it runs also without an object
}

// follow decides what follows a run, and does it: it enqueues the key again, or gives it up.
func (s *schedule) follow(ctx context.Context, r *running, outcome Outcome, requeue *RequeueError, err error) nextRun {
	key := r.run.Key
	switch outcome {
	case OutcomeSuccess, OutcomeRequeue:
		s.succeeded(ctx, r, outcome)
		if requeue == nil {
			return nextRun{why: "when something changes"}
		}
		reason := usercode.ShortenTo(requeue.Reason, maxDetail)
		s.enqueuer.addOwn(key, Cause{Type: CauseRequeue, Detail: reason},
			queueOptions{After: requeue.After, Priority: workqueue.Priority(requeue.Priority)})
		return nextRun{at: time.Now().Add(requeue.After), why: strings.TrimSuffix("as the handler asked ("+reason+")",
			" ()")}
	case OutcomeCancelled:
		s.failures.forget(key)
		r.log().InfoContext(ctx, "handler cancelled: shutting down, or leadership lost", "error", err)
		return nextRun{why: "at the next start"}
	case OutcomeGone:
		s.failures.forget(key)
		return nextRun{why: "when there is such an object again"}
	}
	return s.failed(ctx, r, outcome, err)
}

// succeeded records a run that did not fail.
func (s *schedule) succeeded(ctx context.Context, r *running, outcome Outcome) {
	key := r.run.Key
	scheduled := r.run.Causes.only(CauseListed, CauseResync)
	if s.successes.Record(key, time.Now(), scheduled) && !s.objects.Has(key) {
		s.successes.Forget(key) // the object is gone, and its deletion may have been reported before
	}
	if before := s.failures.forget(key); before.exists() {
		r.log().InfoContext(ctx, "handler recovered", "outcome", string(outcome), "failedFor",
			time.Since(before.since).Round(time.Millisecond))
	}
}

// classOf returns the class of a failed run's error.
func (s *schedule) classOf(outcome Outcome, err error) retry.Class {
	switch outcome {
	case OutcomeTerminal:
		return retry.Terminal
	case OutcomePanic:
		return retry.Panic
	case OutcomeTimeout:
		return retry.Timeout
	}
	return s.rules.Classify(err)
}

// failed records a failed run, and enqueues the key again or gives it up.
func (s *schedule) failed(ctx context.Context, r *running, outcome Outcome, err error) nextRun {
	key, class := r.run.Key, s.classOf(outcome, err)
	panicked, repeated := panicOf(err), s.failures.of(key).class == class
	logStack := false
	f := s.failures.failed(key, r.uid, class, err, time.Now(), func(f *failing) {
		logStack = panicked != nil && !f.stack
		f.stack = f.stack || panicked != nil
	})
	r.mu.Lock()
	r.run.Class = class
	r.mu.Unlock()
	if logStack {
		// The stack is logged once: retries of the same panic would only repeat it.
		r.log().ErrorContext(ctx, "handler panicked", "error", err, "stack", string(panicked.Stack))
	}
	if class == retry.Terminal {
		return s.terminal(ctx, r, err)
	}
	if class == retry.NamespaceTerminating && r.ending == nil && isObject(s.objects, key) &&
		usercode.TerminatingNamespace(err) == key.Namespace {
		s.failures.markTerminal(key, r.generation)
		if !repeated {
			r.log().InfoContext(ctx, "namespace is being deleted, no retry until the object changes", "error", err)
		}
		return nextRun{why: "when the object changes (its namespace is being deleted)"}
	}
	attrs := []any{
		"error", err, "outcome", string(outcome), "class", string(class), "attempt", r.run.Attempt, "causes",
		r.run.Causes.String(),
	}
	if fields := fieldsOf(err); len(fields) > 0 {
		attrs = append(attrs, "fields", fields)
	}
	decision := s.rules.Decide(class, err, f.ofClass)
	decision.Quiet = decision.Quiet || class == retry.NamespaceTerminating && repeated
	if now := time.Now(); f.inBackoff(now) && !decision.GiveUp {
		decision.Delay = max(f.backoff.Sub(now), decision.RetryAfter)
	}
	if decision.GiveUp {
		return s.giveUp(ctx, r, f, attrs)
	}
	if s.queue.Stats().Down {
		r.log().WarnContext(ctx, "handler failed while the controller ends: the next start tries again", attrs...)
		return nextRun{why: "at the next start"}
	}
	s.enqueuer.addOwn(key, Cause{Type: CauseRetry, Attempt: f.consecutive, Detail: string(class)},
		queueOptions{After: decision.Delay, Backoff: true, EndBackoffIf: s.failures.backOff(
			key, time.Now().Add(decision.Delay), s.endBackoffIf, s.mayHelp,
		)})
	s.logFailure(ctx, r, err, decision, append(attrs, "after", decision.Delay))
	s.failures.reportFailing(ctx, key)
	return nextRun{at: time.Now().Add(decision.Delay), why: fmt.Sprintf("retry %d (%s)", f.consecutive, class)}
}

// maxFields is the maximum number of an error's fields in a log line.
const maxFields = 16

// fieldsOf returns the fields that the API server names in err, shortened for a log line.
func fieldsOf(err error) []string {
	fields := retryrules.Fields(err)
	if more := len(fields) - maxFields; more > 0 {
		fields = append(fields[:maxFields:maxFields], fmt.Sprintf("and %d more", more))
	}
	for i, field := range fields {
		fields[i] = usercode.ShortenTo(field, maxDetail)
	}
	return fields
}

// logFailure logs a failure that will be retried: at debug level if the decision is quiet, and the same error of a key
// at most once a second.
func (s *schedule) logFailure(ctx context.Context, r *running, err error, decision retryrules.Decision, attrs []any) {
	if decision.Quiet {
		r.log().DebugContext(ctx, "handler failed, will try again", attrs...)
		return
	}
	allowed, suppressed := s.repeats.Allow(r.run.Key, err.Error(), time.Now())
	if !allowed {
		return
	}
	if suppressed > 0 {
		attrs = append(attrs, "repeated", suppressed)
	}
	r.log().WarnContext(ctx, "handler failed, will try again", attrs...)
}

// terminal records that a key must not be retried until its object changes.
func (s *schedule) terminal(ctx context.Context, r *running, err error) nextRun {
	key := r.run.Key
	if r.ending != nil {
		r.log().ErrorContext(ctx, "Deleted failed with a terminal error, not called again for this object",
			"error", err)
		return s.endGivenUp(r)
	}
	if s.objects.Has(key) {
		// The generation is that of the object at the start of the run: the informer may show a later generation by
		// now, which no run has seen.
		s.failures.markTerminal(key, r.generation)
	} else {
		// There is no resync to hold back, and no deletion event or collection to wait for.
		s.failures.forget(key)
	}
	r.log().ErrorContext(ctx, "handler failed with a terminal error, no retry until its object changes or a source "+
		"enqueues the key", "error", err)
	return nextRun{why: "when its object changes or a source enqueues it (the error is terminal)"}
}

// giveUp gives a key up after its last retry.
func (s *schedule) giveUp(ctx context.Context, r *running, f failing, attrs []any) nextRun {
	if s.failures.giveUp(ctx, r.run.Key) {
		r.log().ErrorContext(ctx, "handler failed, retries are exhausted; next run when something changes or at the "+
			"next resync", append(attrs, "retries", f.ofClass-1)...)
	}
	if r.ending != nil {
		return s.endGivenUp(r)
	}
	if !s.objects.Has(r.run.Key) {
		// Without an object, there is no resync, and no deletion event to wait for.
		s.failures.forget(r.run.Key)
	}
	return nextRun{why: fmt.Sprintf("when something changes or the object is resynced (retries exhausted after %s)",
		counted(f.consecutive, "attempt"))}
}

// endGivenUp handles a run in which Config.Deleted failed for the last time. It removes the object's last state, so
// that it does not block the next object of the name.
func (s *schedule) endGivenUp(r *running) nextRun {
	key := r.run.Key
	s.ends.remove(key, r.ending)
	s.failures.forget(key)
	if !s.reconciles && !s.objects.Has(key) && s.ends.first(key) == nil {
		return nextRun{why: "when another object of this name exists (Deleted is not retried)"}
	}
	s.enqueuer.addOwn(key, Cause{Type: CauseRetry, Detail: "Deleted is not retried"}, queueOptions{})
	return nextRun{at: time.Now(), why: "at once, without Deleted, which is not retried"}
}

// objectEnded removes what is kept of an object if c is its end: its deletion, or its replacement by another one. runs
// is true if c runs the key.
func (s *schedule) objectEnded(c informer.Change, runs bool) {
	replaced := c.Type == informer.Updated && c.Changed(kube.ChangedUID) != 0
	if c.Type != informer.Deleted && !replaced {
		return
	}
	s.timers.stopAll(c.Key)
	if s.failures.objectEnded(c) {
		s.failures.forget(c.Key)
	}
	if s.keepsEnds && runs {
		s.keepLastState(c)
	}
	forgotten := false
	if c.Type == informer.Deleted {
		s.successes.Forget(c.Key)
		if forgotten = !runs; forgotten { // no run will detect the deletion
			s.failures.forget(c.Key)
		}
	}
	s.observers.each(func(o observer) { o.objectEnded(c.Key, forgotten) })
}

// keepLastState records the state before a change that ended an object, for Config.Deleted.
func (s *schedule) keepLastState(c informer.Change) {
	if dropped := s.ends.add(c); dropped != nil {
		s.logger.Warn("Deleted is not called for an object: too many of its name wait for it",
			"key", c.Key.String(), "uid", dropped.state.UID, "waiting", maxEnds)
	}
}

// failedBefore returns the failures of the object that a run will be about. Failures of an earlier object of the same
// name are removed.
func (s *schedule) failedBefore(r *running, key kube.Key) failing {
	failed := s.failures.of(key)
	if !failed.exists() {
		return failed
	}
	if end := s.ends.first(key); end != nil {
		r.uid = end.state.UID
	} else {
		r.identify(s.objects, key)
	}
	if failed.uid == r.uid {
		return failed
	}
	s.failures.forget(key)
	return failing{}
}

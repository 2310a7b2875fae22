package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

// follow decides what follows a run, and does it: it enqueues the key again, or gives it up.
func (l *loop[T]) follow(ctx context.Context, r *running, outcome Outcome, requeue *RequeueError, err error) nextRun {
	key := r.run.Key
	switch outcome {
	case OutcomeSuccess, OutcomeRequeue:
		l.succeeded(ctx, r, outcome)
		if requeue == nil {
			return nextRun{why: "when something changes"}
		}
		reason := usercode.ShortenTo(requeue.Reason, maxDetail)
		l.enqueuer.addOwn(key, Cause{Type: CauseRequeue, Detail: reason}, queueOptions{After: requeue.After})
		return nextRun{at: time.Now().Add(requeue.After), why: strings.TrimSuffix("as the handler asked ("+reason+")", " ()")}
	case OutcomeCancelled:
		l.failures.forget(key)
		r.log().InfoContext(ctx, "handler cancelled: shutting down, or leadership lost", "error", err)
		return nextRun{why: "at the next start"}
	case OutcomeGone:
		l.failures.forget(key)
		l.problems.endOf(key)
		return nextRun{why: "when there is such an object again"}
	}
	return l.failed(ctx, r, outcome, err)
}

// succeeded records a run that did not fail.
func (l *loop[T]) succeeded(ctx context.Context, r *running, outcome Outcome) {
	key := r.run.Key
	scheduled := r.run.Causes.only(CauseListed, CauseResync)
	if l.successes.Record(key, time.Now(), scheduled) && !l.informer.Has(key) {
		l.successes.Forget(key) // the object is gone, and its deletion may have been reported before
	}
	l.problems.endOf(key, ProblemFailing, ProblemStalled, ProblemUnseenWrite)
	if before := l.failures.forget(key); before.inARow > 0 || before.stalled || before.terminal {
		r.log().InfoContext(ctx, "handler recovered", "outcome", string(outcome), "failedFor", time.Since(before.since).Round(time.Millisecond))
	}
}

// classOf returns the class of a failed run's error.
func (l *loop[T]) classOf(outcome Outcome, err error) retry.Class {
	switch outcome {
	case OutcomeTerminal:
		return retry.Terminal
	case OutcomePanic:
		return retry.Panic
	case OutcomeTimeout:
		return retry.Timeout
	}
	return l.rules.Classify(err)
}

// failed records a failed run, and enqueues the key again or gives it up.
func (l *loop[T]) failed(ctx context.Context, r *running, outcome Outcome, err error) nextRun {
	key, class := r.run.Key, l.classOf(outcome, err)
	panicked := panicOf(err)
	logStack := false
	f := l.failures.failed(key, r.uid, class, err, time.Now(), func(f *failing) {
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
		return l.failedForGood(ctx, r, err)
	}
	attrs := []any{"error", err, "outcome", string(outcome), "class", string(class), "attempt", r.run.Attempt, "causes", r.run.Causes.String()}
	if fields := fieldsOf(err); len(fields) > 0 {
		attrs = append(attrs, "fields", fields)
	}
	decision := l.rules.Decide(class, err, f.ofClass)
	if decision.GiveUp {
		return l.stalled(ctx, r, f, err, attrs)
	}
	if l.queue.Stats().Down {
		r.log().WarnContext(ctx, "handler failed while the controller ends: the next start tries again", attrs...)
		return nextRun{why: "at the next start"}
	}
	l.enqueuer.addOwn(key, Cause{Type: CauseRetry, Attempt: f.inARow, Detail: string(class)}, queueOptions{After: decision.Delay, Backoff: true, EndBackoffIf: l.config.Queue.EndBackoffIf})
	l.logFailure(ctx, r, err, decision, append(attrs, "after", decision.Delay))
	l.failsForLong(ctx, r, f)
	return nextRun{at: time.Now().Add(decision.Delay), why: fmt.Sprintf("retry %d (%s)", f.inARow, class)}
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
func (l *loop[T]) logFailure(ctx context.Context, r *running, err error, decision retryrules.Decision, attrs []any) {
	if decision.Quiet {
		r.log().DebugContext(ctx, "handler failed, will try again", attrs...)
		return
	}
	allowed, suppressed := l.repeats.Allow(r.run.Key, err.Error(), time.Now())
	if !allowed {
		return
	}
	if suppressed > 0 {
		attrs = append(attrs, "repeated", suppressed)
	}
	r.log().WarnContext(ctx, "handler failed, will try again", attrs...)
}

// failedForGood records that a key must not be retried until its object changes.
func (l *loop[T]) failedForGood(ctx context.Context, r *running, err error) nextRun {
	key := r.run.Key
	if r.ending != nil {
		r.log().ErrorContext(ctx, "Deleted failed with a terminal error, not called again for this object", "error", err)
		return l.endGivenUp(r)
	}
	if l.informer.Has(key) {
		// The generation is that of the object at the start of the run: the informer may show a later generation by
		// now, which no run has seen.
		l.failures.forGood(key, r.generation)
	} else {
		// Without an object, there is no resync to hold back, and no deletion event to wait for.
		l.forgetFailures(key)
	}
	r.log().ErrorContext(ctx, "handler failed with a terminal error, no retry until the object changes", "error", err)
	return nextRun{why: "when the object changes (the error is terminal)"}
}

// stalled gives a key up after its last retry.
func (l *loop[T]) stalled(ctx context.Context, r *running, f failing, err error, attrs []any) nextRun {
	if l.failures.gaveUp(r.run.Key) {
		r.log().ErrorContext(ctx, "handler failed, retries are exhausted; next run when something changes or at the next resync", append(attrs, "retries", f.ofClass-1)...)
		l.problems.begin(ctx, Problem{
			Type: ProblemStalled, Key: r.run.Key, Since: f.since,
			Message: fmt.Sprintf("retries exhausted after %s, until something changes or the object is resynced: %v", counted(f.inARow, "attempt"), err),
		}, true)
	}
	if r.ending != nil {
		return l.endGivenUp(r)
	}
	if !l.informer.Has(r.run.Key) {
		// Without an object, there is no resync, and no deletion event to wait for.
		l.forgetFailures(r.run.Key)
	}
	return nextRun{why: fmt.Sprintf("when something changes or the object is resynced (retries exhausted after %s)", counted(f.inARow, "attempt"))}
}

// failsForLong reports a key that has failed often and for a long time. It reports it once.
func (l *loop[T]) failsForLong(ctx context.Context, r *running, f failing) {
	if f.reported || f.inARow < failingAttempts || time.Since(f.since) < failingTime {
		return
	}
	l.failures.reported(r.run.Key)
	l.problems.begin(ctx, Problem{
		Type: ProblemFailing, Key: r.run.Key, Since: f.since,
		Message: fmt.Sprintf("has failed %s in a row, for %s, the last time with: %s", counted(f.inARow, "time"), rounded(time.Since(f.since)), f.err),
	}, false)
}

package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/kube"
)

// observer follows what happens to the keys of a term: the history, problems, hot loops, interrupted keys, metrics and
// logs. The loop does not depend on observers.
//
// Observers are called by several goroutines, some of them during an informer's announcement of a change. They must
// return quickly, and must not call the informer.
type observer interface {
	// added is called after key was added to the queue. delayed is true if the cause does not make it ready at once.
	added(key kube.Key, cause *Cause, delayed bool)
	// skipped is called for a change or a trigger that does not add its key to the queue.
	skipped(key kube.Key, why SkipReason, cause *Cause)
	// objectEnded is called when the object of key was deleted, or replaced by another object of its name. forgotten is
	// true if there is no object of the name anymore and no run will find that out.
	objectEnded(key kube.Key, forgotten bool)
	// began is called before a run reads its object.
	began(r *running)
	// ended is called after a run, with its result in r, before the key is given back to the queue. It may extend
	// r.run.NextReason.
	ended(ctx context.Context, r *running)
	// checked is called about every ten seconds, with the keys whose handlers have become stuck since the last call.
	checked(now time.Time, stuck []kube.Key)
}

// ignore is an observer that does nothing. Observers embed it.
type ignore struct{}

func (ignore) added(kube.Key, *Cause, bool)         {}
func (ignore) skipped(kube.Key, SkipReason, *Cause) {}
func (ignore) objectEnded(kube.Key, bool)           {}
func (ignore) began(*running)                       {}
func (ignore) ended(context.Context, *running)      {}
func (ignore) checked(time.Time, []kube.Key)        {}

// observerList calls several observers in order.
type observerList []observer

func (all observerList) added(key kube.Key, cause *Cause, delayed bool) {
	for _, o := range all {
		o.added(key, cause, delayed)
	}
}

func (all observerList) skipped(key kube.Key, why SkipReason, cause *Cause) {
	for _, o := range all {
		o.skipped(key, why, cause)
	}
}

func (all observerList) objectEnded(key kube.Key, forgotten bool) {
	for _, o := range all {
		o.objectEnded(key, forgotten)
	}
}

func (all observerList) began(r *running) {
	for _, o := range all {
		o.began(r)
	}
}

func (all observerList) ended(ctx context.Context, r *running) {
	for _, o := range all {
		o.ended(ctx, r)
	}
}

func (all observerList) checked(now time.Time, stuck []kube.Key) {
	for _, o := range all {
		o.checked(now, stuck)
	}
}

// meter passes measurements to Config.Metrics.
type meter struct {
	ignore
	controller string
	recorder   Recorder
}

func (m *meter) added(_ kube.Key, cause *Cause, _ bool) {
	m.recorder.Triggered(m.controller, cause.Source, cause.Type)
}

func (m *meter) skipped(_ kube.Key, why SkipReason, _ *Cause) { m.recorder.Skipped(m.controller, why) }

func (m *meter) ended(_ context.Context, r *running) {
	m.recorder.RunEnded(m.controller, r.snapshot())
}

// runLog logs each run at debug level.
type runLog struct {
	ignore
	logger *slog.Logger
}

func (l *runLog) ended(ctx context.Context, r *running) {
	if !l.logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	run := r.snapshot()
	r.log().DebugContext(ctx, "handled", "outcome", string(run.Outcome), "duration", run.Duration,
		"causes", run.Causes.String(), "attempt", run.Attempt, "writes", len(run.writes)+run.writesDropped, "next",
		run.NextReason)
}

// simulated reports the runs to a test environment.
type simulated struct {
	ignore
	observe observers.RunFunc
}

func (s *simulated) began(r *running) { s.observe(r.run.Controller, r.run.Key, r.run.Causes) }

package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/kube"
)

// observer follows what happens to the keys of a term: the own writes, history, problems, hot loops, interrupted keys,
// metrics and logs. The loop does not depend on observers.
//
// Observers are called by several goroutines, some of them during an informer's announcement of a change. They must
// return quickly, and must not call the informer.
type observer interface {
	// changed is called for a change of an object, before key is added to the queue for it. manager made it, if known.
	changed(key kube.Key, c informer.Change, manager string)
	// added is called after key was added to the queue. delayed is true if the cause does not make it ready at once.
	added(key kube.Key, cause *Cause, delayed bool)
	// skipped is called for a change or a trigger that does not add its key to the queue.
	skipped(key kube.Key, why SkipReason, cause *Cause)
	// objectEnded is called when the object of key was deleted, or replaced by another object of its name. forgotten is
	// true if there is no object of the name anymore and no run will find that out.
	objectEnded(key kube.Key, forgotten bool)
	// began is called before a run reads its object.
	began(r *running)
	// wrote is called after a completed write of a run, before the handler receives the response.
	wrote(ctx context.Context, r *running, w *tracedWrite)
	// keepsFailing is called once for a key that has failed for long, or was given up, as p describes. logged is true
	// if the log contains it already.
	keepsFailing(ctx context.Context, p Problem, logged bool)
	// failuresEnded is called when a key fails no longer: its run has not failed, or its object is gone.
	failuresEnded(key kube.Key)
	// ended is called after a run, with its result in r, before the key is given back to the queue. It may extend
	// r.run.NextReason.
	ended(ctx context.Context, r *running)
	// checked is called about every ten seconds, with the keys whose handlers have become stuck since the last call.
	checked(now time.Time, stuck []kube.Key)
}

// ignore is an observer that does nothing, and the part of a gate that skips nothing. Observers embed it.
type ignore struct{}

func (ignore) skips(kube.Key, ownwrites.Event) bool          { return false }
func (ignore) changed(kube.Key, informer.Change, string)     {}
func (ignore) added(kube.Key, *Cause, bool)                  {}
func (ignore) skipped(kube.Key, SkipReason, *Cause)          {}
func (ignore) objectEnded(kube.Key, bool)                    {}
func (ignore) began(*running)                                {}
func (ignore) wrote(context.Context, *running, *tracedWrite) {}
func (ignore) keepsFailing(context.Context, Problem, bool)   {}
func (ignore) failuresEnded(kube.Key)                        {}
func (ignore) ended(context.Context, *running)               {}
func (ignore) checked(time.Time, []kube.Key)                 {}

// observerList is several observers, which are called in order.
type observerList []observer

func (all observerList) each(call func(observer)) {
	for _, o := range all {
		call(o)
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

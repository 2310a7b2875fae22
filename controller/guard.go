package controller

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// guarded returns the config with the user's functions behind a guard. A function that fails returns a value that makes
// the handler run: a change must not be lost. The Handler, the Reconciler and Deleted are not guarded: their panics are
// errors of a key.
func (c Config[T]) guarded(g *usercode.Guard) Config[T] {
	if predicate := c.Predicate; predicate != nil {
		c.Predicate = func(change informer.Change) bool {
			return usercode.Value(g, "Config.Predicate", true, func() bool { return predicate(change) })
		}
	}
	if priority := c.Queue.Priority; priority != nil {
		c.Queue.Priority = func(change informer.Change) Priority {
			return usercode.Value(g, "Config.Queue.Priority", PriorityNormal, func() Priority {
				return priority(change)
			})
		}
	}
	if group := c.Queue.Group; group != nil {
		c.Queue.Group = func(key kube.Key) string {
			return usercode.Value(g, "Config.Queue.Group", key.Namespace, func() string { return group(key) })
		}
	}
	if endBackoffIf := c.Queue.EndBackoffIf; endBackoffIf != nil {
		c.Queue.EndBackoffIf = func(cause Cause) bool {
			return usercode.Value(g, "Config.Queue.EndBackoffIf", true, func() bool { return endBackoffIf(cause) })
		}
	}
	if classify := c.Retry.Classify; classify != nil {
		c.Retry.Classify = func(err error) retry.Class {
			return usercode.Value(g, "Config.Retry.Classify", "", func() retry.Class { return classify(err) })
		}
	}
	if derive := c.RunLogger; derive != nil {
		c.RunLogger = func(logger *slog.Logger, run RunRecord) *slog.Logger {
			return usercode.Value(g, "Config.RunLogger", logger, func() *slog.Logger { return derive(logger, run) })
		}
	}
	// A typed nil pointer counts as nil.
	if usercode.IsNil(c.Queue.Limiter) {
		c.Queue.Limiter = nil
	}
	if usercode.IsNil(c.Metrics) {
		c.Metrics = nil
	} else {
		c.Metrics = guardedRecorder{c.Metrics, g}
	}
	if usercode.IsNil(c.Events) {
		c.Events = nil
	} else {
		c.Events = guardedEvents{c.Events, g}
	}
	return c
}

// guardedRecorder is a Recorder behind a guard. The value of a call that fails is lost.
type guardedRecorder struct {
	recorder Recorder
	guard    *usercode.Guard
}

// ObserveInformer implements Recorder.
func (r guardedRecorder) ObserveInformer(name string, health func() informer.Health) (stop func()) {
	return r.observe(func() func() { return r.recorder.ObserveInformer(name, health) })
}

// ObserveController implements Recorder.
func (r guardedRecorder) ObserveController(name string, stats func() Stats) (stop func()) {
	return r.observe(func() func() { return r.recorder.ObserveController(name, stats) })
}

func (r guardedRecorder) observe(begin func() func()) (stop func()) {
	end := usercode.Value(r.guard, "Config.Metrics", nil, begin)
	return func() {
		if end != nil {
			r.call(end)
		}
	}
}

// Triggered implements Recorder.
func (r guardedRecorder) Triggered(controller, source string, cause CauseType) {
	r.call(func() { r.recorder.Triggered(controller, source, cause) })
}

// Skipped implements Recorder.
func (r guardedRecorder) Skipped(controller string, why SkipReason) {
	r.call(func() { r.recorder.Skipped(controller, why) })
}

// ProblemDetected implements Recorder.
func (r guardedRecorder) ProblemDetected(controller string, problem ProblemType) {
	r.call(func() { r.recorder.ProblemDetected(controller, problem) })
}

// RunEnded implements Recorder.
func (r guardedRecorder) RunEnded(controller string, run RunRecord) {
	r.call(func() { r.recorder.RunEnded(controller, run) })
}

func (r guardedRecorder) call(f func()) { _ = r.guard.Call("Config.Metrics", f, nil) }

// guardedEvents is an EventRecorder behind a guard. The Event of a call that fails is lost.
type guardedEvents struct {
	recorder EventRecorder
	guard    *usercode.Guard
}

// Event implements EventRecorder.
func (e guardedEvents) Event(regarding corev1.ObjectReference, eventType, reason, action, note string) {
	_ = e.guard.Call("Config.Events", func() { e.recorder.Event(regarding, eventType, reason, action, note) },
		func() []any {
			return []any{"key", kube.Key{Namespace: regarding.Namespace, Name: regarding.Name}.String()}
		})
}

package controller

import (
	"errors"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// guarded returns the config with the user's functions behind a guard, which recovers from their panics. A function
// that panics returns a value that makes the handler run: a change must not be lost. The Handler, the Reconciler and
// Deleted are not guarded: their panics are errors of a key.
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
	group, endBackoffIf := c.Queue.Group, c.Queue.EndBackoffIf
	c.Queue.Group = func(key kube.Key) string {
		return usercode.Value(g, "Config.Queue.Group", key.Namespace, func() string { return group(key) })
	}
	c.Queue.EndBackoffIf = func(cause Cause) bool {
		return usercode.Value(g, "Config.Queue.EndBackoffIf", true, func() bool { return endBackoffIf(cause) })
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
	if c.Metrics != nil {
		c.Metrics = guardedRecorder{c.Metrics, g}
	}
	if c.Events != nil {
		c.Events = guardedEvents{c.Events, g}
	}
	return c
}

// guardedRecorder is a Recorder that recovers from panics. The recorded value is lost.
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
func (r guardedRecorder) RunEnded(controller string, run RunSummary) {
	r.call(func() { r.recorder.RunEnded(controller, run) })
}

func (r guardedRecorder) call(f func()) { _ = r.guard.Call("Config.Metrics", f, nil) }

// guardedEvents is an EventRecorder that recovers from panics. The Event is lost.
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

// errSourceNoReturn is the error of a source that ended its goroutine instead of returning.
var errSourceNoReturn = errors.New("the source ended its goroutine (runtime.Goexit; t.FailNow does that)")

// guardedRun calls a method of a source that returns an error. It returns a panic as an error.
func guardedRun(g *usercode.Guard, name string, f func() error) error {
	var err error
	if panicked := g.Call(name, func() { err = f() }, nil); panicked != nil {
		return panicked
	}
	return usercode.Error(err)
}

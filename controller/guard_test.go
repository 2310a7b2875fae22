package controller_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// failingHooks calls fail in each function of the interfaces that a Config accepts.
type failingHooks struct{ fail func() }

func (h failingHooks) ObserveInformer(string, func() informer.Health) func() {
	h.fail()
	return nil
}

func (h failingHooks) ObserveController(string, func() controller.Stats) func() { return h.fail }
func (h failingHooks) Triggered(string, string, controller.CauseType)           { h.fail() }
func (h failingHooks) Skipped(string, controller.SkipReason)                    { h.fail() }
func (h failingHooks) ProblemDetected(string, controller.ProblemType)           { h.fail() }
func (h failingHooks) RunEnded(string, controller.RunRecord)                    { h.fail() }
func (h failingHooks) Event(corev1.ObjectReference, string, string, string, string) {
	h.fail()
}

func (h failingHooks) Wait(context.Context) error {
	h.fail()
	return nil
}

// failures are the ways in which a function can fail without returning: a panic, and runtime.Goexit, which t.FailNow
// calls.
func failures() map[string]func() {
	return map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit}
}

// TestContract08_PanicOfUserFunctionDoesNotEndController checks each function of the config with each way to fail.
// Every object is still handled, including those that are created, changed or failing, each stack is logged once, and
// Run returns.
func TestContract08_PanicOfUserFunctionDoesNotEndController(t *testing.T) {
	for how, fail := range failures() {
		t.Run(how, func(t *testing.T) { testFailingFunctions(t, fail) })
	}
}

func testFailingFunctions(t *testing.T, fail func()) {
	t.Helper()
	type config = controller.Config[unstructuredObject]
	hooks := failingHooks{fail}
	for name, set := range map[string]func(c *config){
		"Predicate":      func(c *config) { c.Predicate = func(informer.Change) bool { fail(); return false } },
		"Priority":       func(c *config) { c.Queue.Priority = func(informer.Change) controller.Priority { fail(); return 0 } },
		"Group":          func(c *config) { c.Queue.Group = func(kube.Key) string { fail(); return "" } },
		"EndBackoffIf":   func(c *config) { c.Queue.EndBackoffIf = func(controller.Cause) bool { fail(); return false } },
		"Retry.Classify": func(c *config) { c.Retry.Classify = func(error) retry.Class { fail(); return "" } },
		"Limiter":        func(c *config) { c.Queue.Limiter = hooks },
		"RunLogger": func(c *config) {
			c.RunLogger = func(*slog.Logger, controller.RunRecord) *slog.Logger { fail(); return nil }
		},
		"Metrics": func(c *config) { c.Metrics = hooks },
		"Events":  func(c *config) { c.Events = hooks },
		"Ready of source": func(c *config) {
			c.Sources = []controller.Source{prepared{
				Ready: func() error { fail(); return nil },
				Run:   func(ctx context.Context, _ controller.Enqueue) error { <-ctx.Done(); return nil },
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var logs, handled journal
				fails := true
				c := w.config(func(_ context.Context, widget unstructuredObject) error {
					handled.add("%s %v", widget.GetName(), widget.Object["spec"])
					if widget.GetName() == "fails" && fails {
						return context.DeadlineExceeded
					}
					return nil
				})
				c.Workers, c.Logger = 1, logs.logger(slog.LevelError)
				c.Retry.Every = retry.Policy{Base: time.Hour, Jitter: -1, MaxRetries: 1}
				set(&c)
				w.put("widgets", "a", 1)
				w.put("widgets", "fails", 1)
				ctrl := w.run(c)
				time.Sleep(time.Second)
				w.put("widgets", "a", 2)
				w.put("widgets", "b", 1)
				time.Sleep(time.Second)
				w.put("widgets", "fails", 2)
				time.Sleep(3 * time.Hour)
				_, _ = ctrl.Ready(), ctrl.Problems()
				fails = false
				w.put("widgets", "fails", 3)
				time.Sleep(time.Second)
				got := handled.take()
				for _, want := range []string{"a map[value:1]", "a map[value:2]", "b map[value:1]", "fails map[value:1]", "fails map[value:2]", "fails map[value:3]"} {
					if !slices.Contains(got, want) {
						t.Errorf("handled %q, want %q too", got, want)
					}
				}
				stacks := slices.DeleteFunc(logs.take(), func(line string) bool { return !strings.Contains(line, "msg=\"function ") })
				if len(stacks) != 1 || !strings.Contains(stacks[0], "goroutine") || !strings.Contains(stacks[0], "controller=widgets") {
					t.Errorf("%d stacks are logged, want one: %q", len(stacks), stacks)
				}
			})
		})
	}
}

// prepared is a source that is prepared already.
type prepared controller.PreparedSource

func (s prepared) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource(s), nil
}

// TestContract08_PanicOfSourceEndsController checks that Run returns the failure of a source's functions as an error of
// the source.
func TestContract08_PanicOfSourceEndsController(t *testing.T) {
	type (
		enqueue = controller.Enqueue
		run     = func() error
	)
	for how, fail := range failures() {
		for name, source := range map[string]controller.Source{
			"Run":   controller.SourceFunc(func(context.Context, enqueue) error { fail(); return nil }),
			"Start": prepared{Start: func(context.Context, enqueue) (run, error) { fail(); return nil, nil }},
			"run":   prepared{Start: func(context.Context, enqueue) (run, error) { return func() error { fail(); return nil }, nil }},
		} {
			t.Run(how+" in "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					c := w.config(func(context.Context, unstructuredObject) error { return nil })
					c.Sources = []controller.Source{source}
					ctrl, err := controller.New(c)
					if err != nil {
						t.Fatal(err)
					}
					texts := map[string]string{"panic": "panicked: no", "Goexit": "it called runtime.Goexit"}
					if err := ctrl.Run(t.Context()); err == nil || !strings.Contains(err.Error(), texts[how]) {
						t.Errorf("Run returned %v", err)
					}
				})
			})
		}
	}
}

// TestContract02_PanicsOfSourcesLoseNoWakeUp checks that a predicate that fails accepts the change, and that a
// function that fails for one state of an object is called with the other one.
func TestContract02_PanicsOfSourcesLoseNoWakeUp(t *testing.T) {
	for how, fail := range failures() {
		t.Run(how, func(t *testing.T) { testFailingSource(t, fail) })
	}
}

func testFailingSource(t *testing.T, fail func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		parts := w.parts(kube.Selection{})
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			return nil
		})
		c.Sources = []controller.Source{source.Mapped(parts, func(part unstructuredObject) []kube.Key {
			if part.Object["spec"] == nil {
				fail()
			}
			return []kube.Key{key("a")}
		}, func(informer.Change) bool { fail(); return false })}
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(time.Second)
		runs.take()
		if err := w.create(t.Context(), "parts", "Part", "p"); err != nil { // without a spec
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.put("parts", "p", 1)
		time.Sleep(time.Second)
		if got := runs.take(); len(got) != 1 || !strings.Contains(got[0], "Part ns/p updated") {
			t.Errorf("handled %q, want a run for the part that has a spec now", got)
		}
	})
}

// panickingPrepare is a source with a Prepare method that panics.
type panickingPrepare struct{}

func (panickingPrepare) Prepare(controller.Target) (controller.PreparedSource, error) { panic("no") }

// TestSourceThatFailsToPrepareIsRejected checks that New and AddSource refuse a source that panics in Prepare, and one
// that sets neither Run nor Start.
func TestSourceThatFailsToPrepareIsRejected(t *testing.T) {
	for want, source := range map[string]controller.Source{
		"panicked: no": panickingPrepare{},
		"must set exactly one of PreparedSource.Run and Start": unprepared{},
	} {
		c := config(newServer("a"), func(context.Context, configMap) error { return nil })
		ctrl := newController(t, c)
		if _, err := ctrl.AddSource(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("AddSource: %v, want %q in it", err, want)
		}
		c.Sources = []controller.Source{source}
		if _, err := controller.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q in it", err, want)
		}
	}
}

// unprepared is a source that sets nothing.
type unprepared struct{}

func (unprepared) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{}, nil
}

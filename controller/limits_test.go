package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// limiterFunc is a function as a Limiter.
type limiterFunc func(ctx context.Context) error

func (f limiterFunc) Wait(ctx context.Context) error { return f(ctx) }

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("c", i))
	}
	return all
}

func TestLimiterLimitsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		c := config(newServer(names(20)...), func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			return nil
		})
		c.Workers = 2
		c.Queue.Limiter = rate.NewLimiter(1, 1)
		ctrl := newController(t, c)
		start(t, ctrl)
		time.Sleep(10*time.Second + time.Millisecond)
		// The burst, and one a second.
		if n := len(runs.take()); n != 11 {
			t.Errorf("%d runs in 10 s", n)
		}
		if s := ctrl.Stats(); s.Ready != 9 || s.Processing != 0 {
			t.Errorf("keys do not wait in the queue: %+v", s)
		}
		time.Sleep(time.Minute)
		if n := len(runs.take()); n != 9 {
			t.Errorf("%d further runs", n)
		}
	})
}

// TestHeldKeysUseNoLimiterSlot checks that a key that is held, because an informer does not show its writes yet, does not
// use the limiter's permission for a run.
func TestHeldKeysUseNoLimiterSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(kube.Selection{})
		runs, waits := 0, 0
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			if runs++; runs == 1 {
				return w.create(ctx, "parts", "Part", "p")
			}
			return nil
		})
		c.Reads, c.Workers = []informer.Any{parts}, 1
		c.Queue.Limiter = limiterFunc(func(context.Context) error {
			waits++
			return nil
		})
		w.HoldWatches("parts")
		w.put("widgets", "a", 1)
		w.run(c)
		synctest.Wait()
		for i := range 5 {
			w.put("widgets", "a", i+2) // a worker takes the key, and holds it
			time.Sleep(time.Millisecond)
		}
		if runs != 1 || waits != 2 {
			t.Errorf("%d runs and %d permissions while the key is held, want 1 and the next one", runs, waits)
		}
		w.ReleaseWatches("parts")
		synctest.Wait()
		if runs != 2 || waits != 3 {
			t.Errorf("%d runs and %d permissions, want 2 and the next one", runs, waits)
		}
	})
}

// A key of a high priority goes before keys that are ready for longer.
func TestLimiterKeepsPriorities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		trigger := make(chan controller.Trigger)
		c := config(newServer(names(20)...), func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			return nil
		})
		c.Workers = 1
		c.Queue.Limiter = rate.NewLimiter(1, 1)
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
			for {
				select {
				case why := <-trigger:
					enqueue(key("c0"), why)
				case <-ctx.Done():
					return nil
				}
			}
		})}
		start(t, newController(t, c))
		time.Sleep(3*time.Second + time.Millisecond)
		runs.take()
		trigger <- controller.Trigger{Priority: controller.PriorityHigh}
		time.Sleep(time.Second)
		if got := runs.take(); len(got) != 1 || got[0] != "c0" {
			t.Errorf("the next run was of %s", got)
		}
	})
}

// Two controllers share a limiter: together they have its rate.
func TestSharedLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		limiter := rate.NewLimiter(2, 1)
		for i := range 2 {
			c := config(newServer(names(30)...), func(context.Context, configMap) error {
				runs.add("%d", i)
				return nil
			})
			c.Name, c.Queue.Limiter = fmt.Sprint("test", i), limiter
			start(t, newController(t, c))
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if n := len(runs.take()); n != 21 {
			t.Errorf("%d runs in 10 s", n)
		}
	})
}

func TestLimiterAtShutdown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		drain bool
		every time.Duration
		runs  int
		takes time.Duration
	}{
		{"keys are dropped", false, time.Second, 1, 0},
		{"keys are drained within the limit", true, time.Second, 5, 4 * time.Second},
		{"drain time is over", true, 10 * time.Second, 3, 25 * time.Second},
		{"nothing to drain", true, time.Minute, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs journal
				objects := 5
				if row.name == "nothing to drain" {
					objects = 1
				}
				c := config(newServer(names(objects)...), func(ctx context.Context, obj configMap) error {
					if ctx.Err() != nil {
						t.Errorf("a handler is called after the drain time: %v", ctx.Err())
					}
					runs.add("%s", obj.Name)
					return nil
				})
				c.Workers, c.Runs.DrainQueue = 1, row.drain
				c.Queue.Limiter = rate.NewLimiter(rate.Every(row.every), 1)
				stop := start(t, newController(t, c))
				time.Sleep(time.Millisecond)
				synctest.Wait()
				begun := time.Now()
				if err := stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun).Round(10 * time.Millisecond); took != row.takes {
					t.Errorf("the shutdown took %s, want %s", took, row.takes)
				}
				if got := runs.take(); len(got) != row.runs {
					t.Errorf("%d runs, want %d: %s", len(got), row.runs, got)
				}
			})
		})
	}
}

// A deadline of the context of Run does not let runs start that rate.Limiter could allow only after it.
func TestLimiterLimitsRunsBeforeADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		c := config(newServer(names(20)...), func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			return nil
		})
		c.Queue.Limiter = rate.NewLimiter(rate.Every(time.Minute), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := newController(t, c).Run(ctx); err != nil {
			t.Error(err)
		}
		if n := len(runs.take()); n != 1 {
			t.Errorf("%d runs, want 1 in each minute", n)
		}
	})
}

// A limiter that fails or panics does not stop the controller.
func TestLimiterFails(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]limiterFunc{
		"error": func(context.Context) error { return errors.New("no limits today") },
		"panic": func(context.Context) error { panic("no limits today") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs, log journal
				c := config(newServer(names(5)...), func(_ context.Context, obj configMap) error {
					runs.add("%s", obj.Name)
					return nil
				})
				c.Queue.Limiter, c.Logger = wait, log.logger(slog.LevelWarn)
				start(t, newController(t, c))
				synctest.Wait()
				if n := len(runs.take()); n != 5 {
					t.Errorf("%d runs", n)
				}
				if lines := log.take(); len(lines) != 1 || !strings.Contains(lines[0], "no limits today") {
					t.Errorf("the log has %q", lines)
				}
			})
		})
	}
}

// The priority of a RequeueError orders the key when it is ready again, also if the error is wrapped.
func TestRequeuePriority(t *testing.T) {
	t.Parallel()
	for priority, longest := range map[controller.Priority]time.Duration{
		controller.PriorityHigh:   time.Second,
		controller.PriorityNormal: time.Minute,
	} {
		t.Run(fmt.Sprint(priority), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var waits journal
				c := config(newServer(names(10)...), func(ctx context.Context, obj configMap) error {
					run, _ := controller.RunFrom(ctx)
					if obj.Name == "c9" && run.Causes.Has(controller.CauseRequeue) {
						waits.add("%s", run.Wait)
					}
					time.Sleep(time.Second)
					if obj.Name == "c9" {
						return fmt.Errorf("wait: %w", &controller.RequeueError{After: 5 * time.Second, Priority: priority})
					}
					return controller.RequeueAfter(0)
				})
				c.Workers = 1
				start(t, newController(t, c))
				time.Sleep(time.Minute)
				for _, text := range waits.take() {
					wait, err := time.ParseDuration(text)
					if err != nil || wait > longest || longest > time.Second && wait < 5*time.Second {
						t.Errorf("c9 waited %s", text)
					}
				}
			})
		})
	}
}

// A run for an earlier cause keeps the high priority of a requeue: otherwise a change would make the key wait for longer.
// A lower priority has no effect on it.
func TestRequeuePriorityWithEarlierCauses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		priority controller.Priority
		during   bool // the change arrives during the run
		want     string
	}{
		"high":                      {controller.PriorityHigh, false, "[c0 c9 c1]"},
		"high, change in the run":   {controller.PriorityHigh, true, "[c9 c0 c1]"},
		"normal":                    {controller.PriorityNormal, false, "[c0 c1 c2]"},
		"normal, change in the run": {controller.PriorityNormal, true, "[c0 c1 c2]"},
		"low":                       {controller.PriorityLow, false, "[c0 c1 c2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newServer(names(10)...)
				change := func() {
					for i := range 10 {
						server.Put(object(fmt.Sprint("c", i), "2"))
						time.Sleep(time.Millisecond) // an idle worker takes the first one
					}
				}
				var runs journal
				c := config(server, func(_ context.Context, obj configMap) error {
					if obj.Name != "c9" || obj.Data["value"] != "1" {
						runs.add("%s", obj.Name)
						time.Sleep(time.Second)
						return nil
					}
					if time.Sleep(time.Minute); test.during {
						change()
					}
					return &controller.RequeueError{After: time.Hour, Priority: test.priority}
				})
				c.Workers = 1
				start(t, newController(t, c))
				time.Sleep(2 * time.Minute)
				if !test.during {
					runs.take()
					change()
					time.Sleep(time.Minute)
				}
				if got := runs.take(); fmt.Sprint(got[len(got)-10:len(got)-7]) != test.want {
					t.Errorf("the runs after the changes begin with %s, want %s", got[len(got)-10:len(got)-7], test.want)
				}
			})
		})
	}
}

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/retry"
)

// resyncs counts the runs that were caused by a resync, by name.
type resyncs struct {
	mu   sync.Mutex
	runs map[string][]time.Time
}

func (r *resyncs) note(ctx context.Context, name string) {
	if run, _ := controller.RunFrom(ctx); !strings.Contains(run.Causes.String(), "resync") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = map[string][]time.Time{}
	}
	r.runs[name] = append(r.runs[name], time.Now())
}

// take returns the runs since the last call.
func (r *resyncs) take() map[string][]time.Time {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

func TestContract29_ResyncsHaveFixedOffsets(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 10 * time.Second, 3 * time.Minute, 10 * time.Hour} {
		t.Run(interval.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const objects = 700
				var names []string
				for i := range objects {
					names = append(names, fmt.Sprintf("o%d", i))
				}
				server := newServer(names...)
				var seen resyncs
				c := config(server, func(ctx context.Context, obj configMap) error { seen.note(ctx, obj.Name); return nil })
				c.ResyncInterval = interval
				ctrl := newController(t, c)
				start(t, ctrl)
				synctest.Wait()
				if s := ctrl.Stats(); s.Delayed != 0 || s.Ready != 0 {
					t.Errorf("at rest the queue has %+v", s)
				}
				began := time.Now()
				for round := range testlength.Count(2, 4) {
					time.Sleep(interval)
					runs := seen.take()
					if len(runs) != objects {
						t.Errorf("round %d: %d objects were resynced, want %d", round, len(runs), objects)
					}
					moments := map[time.Time]int{}
					for name, times := range runs {
						if len(times) != 1 {
							t.Errorf("round %d: %s was resynced %d times", round, name, len(times))
						}
						moments[times[0]]++
						if at := times[0].Sub(began) - time.Duration(round)*interval; at < interval/10 {
							t.Errorf("round %d: %s was resynced %s after the interval had begun", round, name, at)
						}
					}
					most := 0
					for _, n := range moments {
						most = max(most, n)
					}
					if least := min(200, int(interval/(25*time.Millisecond))); len(moments) < least || most > 3*objects/least {
						t.Errorf("round %d: resyncs fall into %d moments, %d into one", round, len(moments), most)
					}
					if s := ctrl.Stats(); s.Delayed != 0 || s.Ready != 0 {
						t.Errorf("round %d: the queue has %+v", round, s)
					}
				}
			})
		})
	}
}

func TestResyncIncludesNewAndOmitsDeletedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("goes", "stays")
		var seen resyncs
		c := config(server, func(ctx context.Context, obj configMap) error { seen.note(ctx, obj.Name); return nil })
		c.ResyncInterval = time.Hour
		start(t, newController(t, c))
		time.Sleep(30*time.Minute - time.Second)
		for i := range 300 {
			server.Put(object(fmt.Sprintf("new%d", i), "1"))
		}
		server.Delete(key("goes"))
		seen.take()
		time.Sleep(55 * time.Minute)
		if runs := seen.take(); len(runs) > 1 || runs["stays"] == nil && len(runs) == 1 {
			t.Errorf("%d objects were resynced before the interval since their success had passed", len(runs))
		}
		time.Sleep(20 * time.Minute)
		runs := seen.take()
		if runs["goes"] != nil {
			t.Error("an object that is gone was resynced")
		}
		delete(runs, "stays") // it has a fixed offset in every hour
		if len(runs) != 300 {
			t.Errorf("%d objects were resynced, want 300", len(runs))
		}
		for name, times := range runs {
			if len(times) > 1 {
				t.Errorf("%s was resynced %d times in an hour", name, len(times))
			}
		}
	})
}

func TestResyncOmitsFailingObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("well", "fails", "terminal", "given-up")
		var seen resyncs
		var mu sync.Mutex
		mended := false
		c := config(server, func(ctx context.Context, obj configMap) error {
			seen.note(ctx, obj.Name)
			mu.Lock()
			defer mu.Unlock()
			if mended {
				return nil
			}
			switch obj.Name {
			case "fails":
				return errors.New("fails")
			case "terminal":
				return controller.Terminal(errors.New("for good"))
			}
			return nil
		})
		c.ResyncInterval = time.Minute
		c.Retry = retry.Config{Every: retry.Policy{Base: 100 * time.Hour, Max: 100 * time.Hour}}
		start(t, newController(t, c))
		time.Sleep(10 * time.Minute)
		runs := seen.take()
		if len(runs["fails"]) != 0 || len(runs["terminal"]) != 0 {
			t.Errorf("%d resyncs of what fails, %d of what failed for good", len(runs["fails"]), len(runs["terminal"]))
		}
		if len(runs["well"]) != 10 {
			t.Errorf("%d resyncs of what is well, want 10", len(runs["well"]))
		}
		mu.Lock()
		mended = true
		mu.Unlock()
		server.Put(object("fails", "2"))
		server.Put(object("terminal", "2"))
		time.Sleep(10 * time.Minute)
		runs = seen.take()
		for _, name := range []string{"fails", "terminal"} {
			if n := len(runs[name]); n < 8 || n > 10 {
				t.Errorf("after it was mended, %d resyncs of %q in 10 intervals", n, name)
			}
		}
	})
}

// TestContract29_ResyncIntervalStartsAtLastSuccess checks that an object that ran for another reason is resynced one
// interval after that run.
func TestContract29_ResyncIntervalStartsAtLastSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Hour
		server := newServer("a")
		var seen resyncs
		c := config(server, func(ctx context.Context, obj configMap) error { seen.note(ctx, obj.Name); return nil })
		c.ResyncInterval = interval
		start(t, newController(t, c))
		last := time.Now()
		for i := range 20 {
			time.Sleep(time.Duration(i) * 7 * time.Minute)
			for _, at := range seen.take()["a"] {
				if passed := at.Sub(last); passed > interval*5/4 || i > 1 && passed < interval {
					t.Errorf("a resync came %s after the last success, want %s to %s", passed, interval, interval*5/4)
				}
				last = at
			}
			server.Put(object("a", fmt.Sprint(i)))
			synctest.Wait()
			last = time.Now()
		}
	})
}

// TestResyncRunsKeysWithExhaustedRetries checks that a key with exhausted retries is handled again at the next resync.
func TestResyncRunsKeysWithExhaustedRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen resyncs
		c := config(newServer("a"), func(ctx context.Context, obj configMap) error {
			seen.note(ctx, obj.Name)
			return errors.New("fails")
		})
		c.ResyncInterval = time.Hour
		c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 2}}
		start(t, newController(t, c))
		time.Sleep(5 * time.Hour)
		if n := len(seen.take()["a"]); n != 5 {
			t.Errorf("%d resyncs in 5 intervals", n)
		}
	})
}

func TestResyncEndsWithTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen resyncs
		c := config(newServer("a"), func(ctx context.Context, obj configMap) error { seen.note(ctx, obj.Name); return nil })
		c.ResyncInterval = time.Minute
		stop := start(t, newController(t, c))
		time.Sleep(10 * time.Minute)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %s", took)
		}
		seen.take()
		time.Sleep(time.Hour)
		if runs := seen.take(); runs != nil {
			t.Errorf("resyncs after the end: %v", runs)
		}
	})
}

// TestMissedResyncsAreNotRepeated checks that a process that was stopped for an hour does not make up for
// twenty missed resyncs.
func TestMissedResyncsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stall atomic.Bool
		runs := &journal{}
		c := config(newServer("a"), func(_ context.Context, _ configMap) error {
			runs.add("%s", time.Now())
			return nil
		})
		c.ResyncInterval = time.Minute
		c.Predicate = func(informer.Change) bool {
			if stall.Swap(false) {
				time.Sleep(time.Hour)
			}
			return true
		}
		start(t, newController(t, c))
		time.Sleep(5 * time.Minute)
		stall.Store(true)
		runs.take()
		time.Sleep(2 * time.Hour)
		if got := len(runs.take()); got > 63 || got < 58 {
			t.Errorf("%d runs in the hour after an hour's pause", got)
		}
	})
}

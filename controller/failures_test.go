package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// events is a controller.EventRecorder that records the Events in a journal.
type events struct{ journal }

func (e *events) Event(regarding corev1.ObjectReference, eventType, reason, _, note string) {
	e.add("%s %s/%s (%s) %s: %s", eventType, regarding.Kind, regarding.Name, regarding.UID, reason, note)
}

// TestContract17_ErrorClassesHavePolicies checks the delay of the second run, the log level of the first failure,
// and the name of its class.
func TestContract17_ErrorClassesHavePolicies(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, test := range map[string]struct {
		err       error
		class     retry.Class
		from, to  time.Duration
		warns     bool
		mentioned string
	}{
		"conflict":  {apierrors.NewConflict(resource, "a", errors.New("modified")), retry.Conflict, 2 * time.Millisecond, 5 * time.Millisecond, false, ""},
		"throttled": {apierrors.NewTooManyRequests("slow down", 7), retry.Throttled, 7 * time.Second, 11 * time.Second, true, ""},
		"transient": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), retry.Transient, 50 * time.Millisecond, 100 * time.Millisecond, true, ""},
		"forbidden": {apierrors.NewForbidden(resource, "a", errors.New("no role")), retry.Forbidden, 800 * time.Millisecond, time.Second, true, ""},
		"invalid": {
			apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "a", field.ErrorList{field.Required(field.NewPath("spec", "size"), "say how large")}),
			retry.Invalid, 24 * time.Second, 30 * time.Second, true, "spec.size",
		},
		"own":     {errors.New("no luck"), retry.Default, 4 * time.Millisecond, 5 * time.Millisecond, true, ""},
		"of mine": {retry.WithClass(errors.New("the vendor is down"), "vendor"), "vendor", time.Hour, time.Hour, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var logs journal
				var at []time.Time
				var attempts []retry.Class
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					run, _ := controller.RunFrom(ctx)
					at, attempts = append(at, time.Now()), append(attempts, run.AttemptClass)
					if len(at) > 1 {
						return nil
					}
					return test.err
				})
				c.Logger = logs.logger(slog.LevelWarn)
				c.Retry = retry.Config{Policies: map[retry.Class]retry.Policy{"vendor": {Base: time.Hour, Jitter: -1}}}
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				synctest.Wait()
				if run := ctrl.RecentRuns()[0]; run.Class != test.class {
					t.Errorf("class %q, want %q", run.Class, test.class)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if len(at) != 2 || at[1].Sub(at[0]) < test.from || at[1].Sub(at[0]) > test.to {
					t.Fatalf("runs at %v, want the second one after %s to %s", at, test.from, test.to)
				}
				if !slices.Equal(attempts, []retry.Class{"", test.class}) {
					t.Errorf("the runs learn of failures of the classes %q", attempts)
				}
				lines := logs.take()
				if warned := len(lines) > 0; warned != test.warns || !strings.Contains(strings.Join(lines, ""), test.mentioned) {
					t.Errorf("logged %q", lines)
				}
			})
		})
	}
}

// TestContract17_TerminatingNamespaceStopsRetries checks the runs of a key whose handler cannot create objects because a
// namespace is being deleted, and that the failure is logged once.
func TestContract17_TerminatingNamespaceStopsRetries(t *testing.T) {
	for name, test := range map[string]struct {
		err        error
		atLeast    int // runs in 2 h
		atMost     int
		logged     string
		notRetried bool
	}{
		"of the object":     {errtest.NamespaceTerminating("ns"), 1, 1, "level=INFO msg=\"namespace is being deleted, no retry until the object changes\"", true},
		"several":           {fmt.Errorf("apply: %w", errors.Join(errtest.NamespaceTerminating("ns"), errtest.NamespaceTerminating("ns"))), 1, 1, "level=INFO", true},
		"another namespace": {errtest.NamespaceTerminating("shop"), 12, 20, "level=WARN msg=\"handler failed, will try again\"", false},
		"another error too": {errors.Join(errtest.NamespaceTerminating("ns"), errtest.Response(503, 0)), 100, 1000, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var logs journal
				runs, fails := 0, true
				c := w.config(func(context.Context, unstructuredObject) error {
					if runs++; fails {
						return test.err
					}
					return nil
				})
				c.Logger, c.ResyncInterval = logs.logger(slog.LevelInfo), 3*time.Minute
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if runs < test.atLeast || runs > test.atMost {
					t.Errorf("%d runs, want %d to %d", runs, test.atLeast, test.atMost)
				}
				lines := slices.DeleteFunc(logs.take(), func(line string) bool {
					return !strings.Contains(line, "is being terminated") || strings.Contains(line, "keeps failing")
				})
				if test.logged != "" && (len(lines) != 1 || !strings.Contains(lines[0], test.logged)) {
					t.Errorf("logged %q, want one line with %q", lines, test.logged)
				}
				if !test.notRetried {
					return
				}
				before := runs
				w.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool { obj["spec"] = map[string]any{"value": 2}; return true })
				synctest.Wait()
				if again := logs.take(); runs != before+1 || len(again) > 0 {
					t.Errorf("%d runs after a change, which logged %q", runs-before, again)
				}
				fails = false
				w.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool { obj["spec"] = map[string]any{"value": 3}; return true })
				synctest.Wait()
				if run := ctrl.RecentRuns()[0]; run.Outcome != controller.OutcomeSuccess {
					t.Errorf("the last run: %+v", run)
				}
			})
		})
	}
}

// No event of the object follows, and the function may clean up something outside of the namespace.
func TestDeletedIsRetriedInTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var calls atomic.Int32
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		c.Deleted = func(context.Context, unstructuredObject, bool) error {
			if calls.Add(1) < 3 {
				return errtest.NamespaceTerminating("ns")
			}
			return nil
		}
		w.put("widgets", "a", 1)
		w.run(c)
		synctest.Wait()
		w.remove("widgets", "a")
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 3 {
			t.Errorf("Deleted was called %d times, want 3", n)
		}
	})
}

// TestContract17_KeyIsStalledAfterLastRetry checks that the metric, the log line and the Event come once, until the
// key succeeds.
func TestContract17_KeyIsStalledAfterLastRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		var told events
		fails, runs := true, 0
		c := w.config(func(context.Context, unstructuredObject) error {
			runs++
			if fails {
				return errors.New("no luck")
			}
			return nil
		})
		c.Logger, c.Events, c.Metrics = logs.logger(slog.LevelError), &told, newRecorder()
		c.Retry.Every.MaxRetries = 3
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		synctest.Wait()
		problems := ctrl.Problems()
		if runs != 4 || len(problems) != 1 || problems[0].Type != controller.ProblemStalled || problems[0].Key != key("a") {
			t.Fatalf("%d runs, problems %+v", runs, problems)
		}
		w.put("widgets", "a", 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		if runs != 8 {
			t.Errorf("a change of the object gave %d further runs, want 4", runs-4)
		}
		if got := told.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning Widget/a ("+string(w.uid("widgets", "a"))+") Stalled: retries exhausted after 4 attempts") {
			t.Errorf("Events %q, want one", got)
		}
		if got := logs.take(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
		if n := ctrl.Stats().Problems[controller.ProblemStalled]; n != 1 {
			t.Errorf("Stats counts %d stalled keys", n)
		}
		fails = false
		w.put("widgets", "a", 3)
		time.Sleep(time.Minute)
		expectNoProblems(t, "after a success", ctrl)
	})
}

// TestContract17_GenerationChangeEndsTerminal checks that a key with a terminal error runs again when the
// generation changes.
func TestContract17_GenerationChangeEndsTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			return controller.Terminal(errors.New("this will never do"))
		})
		c.ResyncInterval = time.Minute
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		synctest.Wait()
		runs.take()
		edit := func(field string) {
			w.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool {
				obj[field] = map[string]any{"x": time.Now().String()}
				return true
			})
		}
		edit("status")
		w.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool {
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
			return true
		})
		time.Sleep(time.Hour)
		if got := runs.take(); len(got) != 0 {
			t.Errorf("without a change of the generation, handled: %q", got)
		}
		if got := ctrl.Explain(key("a")); !strings.Contains(got, "skipped (terminal): updated (labels) by somebody") {
			t.Errorf("the explanation does not say what was skipped:\n%s", got)
		}
		edit("spec")
		synctest.Wait()
		if got := runs.take(); len(got) != 1 {
			t.Errorf("when the generation changes, handled: %q", got)
		}
	})
}

// TestContract17_ObjectChangeEndsBackoff checks that a change of the object itself ends its backoff, and that a change of
// its parts brings the next run forward. A change of a status does not, unless Config.Queue.EndBackoffIf returns true for
// it.
func TestContract17_ObjectChangeEndsBackoff(t *testing.T) {
	for name, test := range map[string]struct {
		endsBackoff func(controller.Cause) bool
		do          func(w *world)
		wakes       bool
	}{
		"its spec":             {nil, func(w *world) { w.put("widgets", "a", 2) }, true},
		"its status":           {nil, func(w *world) { setStatus(w, "widgets", "a") }, false},
		"a part":               {nil, func(w *world) { w.put("parts", "p", 2) }, true},
		"a part that goes":     {nil, func(w *world) { w.remove("parts", "p") }, true},
		"a part's status":      {nil, func(w *world) { setStatus(w, "parts", "p") }, false},
		"a part, where it may": {func(controller.Cause) bool { return true }, func(w *world) { w.put("parts", "p", 2) }, true},
		"a part, where it may not": {
			func(controller.Cause) bool { return false }, func(w *world) { w.put("parts", "p", 2) }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("%s", causesOf(ctx))
					return errors.New("no luck")
				})
				c.Sources = []controller.Source{source.OwnerLabel(w.parts(kube.Selection{}), "widget")}
				c.Retry.Every = retry.Policy{Base: time.Hour, Jitter: -1}
				c.Queue.EndBackoffIf = test.endsBackoff
				w.widgetWithPart()
				w.run(c)
				time.Sleep(time.Second)
				runs.take()
				test.do(w)
				time.Sleep(time.Second)
				if woken := len(runs.take()) > 0; woken != test.wakes {
					t.Errorf("the key runs: %v, want %v", woken, test.wakes)
				}
				time.Sleep(2 * time.Hour)
				if got := runs.take(); len(got) == 0 || !test.wakes && !strings.Contains(got[0], ", ") {
					t.Errorf("at the end of the back-off, handled for %q: what came meanwhile should be among the causes", got)
				}
			})
		})
	}
}

// A change of another object brings the next run forward once in each backoff. That run is no retry: the number of
// retries, and the end of the backoff, stay. An object that changes all the time does not make a loop.
func TestContract17_OtherObjectBringsRunForwardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		began := time.Now()
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			run, _ := controller.RunFrom(ctx)
			runs.add("%s: attempt %d", time.Since(began).Round(time.Minute), run.Attempt)
			return errors.New("no luck")
		})
		c.Sources = []controller.Source{source.OwnerLabel(w.parts(kube.Selection{}), "widget")}
		c.Retry.Every = retry.Policy{Base: time.Hour, Factor: 2, Max: 4 * time.Hour, Jitter: -1, MaxRetries: 3}
		w.widgetWithPart()
		w.run(c)
		time.Sleep(5 * time.Minute)
		for i := range 8 * 6 {
			time.Sleep(10 * time.Minute)
			w.put("parts", "p", i)
		}
		want := []string{
			"0s: attempt 0", "15m0s: attempt 1", // the second is brought forward
			"1h0m0s: attempt 1", "1h5m0s: attempt 2",
			"3h0m0s: attempt 2", "3h5m0s: attempt 3",
			"7h0m0s: attempt 3", "7h5m0s: attempt 0", // retries are exhausted: the next change starts again
		}
		if got := runs.take(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("runs: %q, want %q", got, want)
		}
	})
}

// A handler that fails until another object exists runs when it appears, also during the run that fails.
func TestContract17_MissingObjectThatAppearsRunsKey(t *testing.T) {
	for name, during := range map[string]bool{"during the run": true, "during the backoff": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				parts := w.parts(kube.Selection{})
				c := w.config(func(context.Context, unstructuredObject) error {
					found := cache.Of(parts).Has(key("p"))
					runs.add("%v", found)
					if found {
						return nil
					}
					if during {
						w.put("parts", "p", 1)
						time.Sleep(time.Second)
					}
					return errors.New("the part is missing")
				})
				c.Sources = []controller.Source{source.Mapped(parts, func(unstructuredObject) []kube.Key { return []kube.Key{key("a")} })}
				c.Retry.Every = retry.Policy{Base: time.Hour, Jitter: -1}
				w.put("widgets", "a", 1)
				w.run(c)
				time.Sleep(time.Minute)
				if !during {
					w.put("parts", "p", 1)
					time.Sleep(time.Minute)
				}
				if got := runs.take(); !slices.Equal(got, []string{"false", "true"}) {
					t.Errorf("the handler found the part: %v", got)
				}
			})
		})
	}
}

func setStatus(w *world, resource, name string) {
	w.Edit(resource, key(name), "somebody", func(obj map[string]any) bool {
		obj["status"] = map[string]any{"at": time.Now().String()}
		return true
	})
}

// TestContract17_EarliestOfRequeueAndEventWins checks that a RequeueAfter result, which is not a failure, does
// not cause a backoff.
func TestContract17_EarliestOfRequeueAndEventWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			return controller.RequeueAfter(time.Hour)
		})
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(time.Minute)
		runs.take()
		setStatus(w, "widgets", "a")
		synctest.Wait()
		if got := runs.take(); len(got) != 1 {
			t.Errorf("a change before the hour is over: handled %q", got)
		}
		time.Sleep(59 * time.Minute)
		if got := runs.take(); len(got) != 0 {
			t.Errorf("the earlier answer was superseded, but handled: %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := runs.take(); !slices.Equal(got, []string{"requeue"}) {
			t.Errorf("an hour after the last answer, handled: %q", got)
		}
	})
}

// TestContract21_KeysThatNeverSucceedAreReported checks that a key is reported once, after ten attempts and ten
// minutes.
func TestContract21_KeysThatNeverSucceedAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var told events
		c := w.config(func(context.Context, unstructuredObject) error { return errors.New("no luck") })
		c.Events = &told
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(9 * time.Minute)
		expectNoProblems(t, "after nine minutes", ctrl)
		time.Sleep(5 * time.Hour)
		if got := told.take(); len(got) != 1 || !strings.Contains(got[0], "Failing: has failed ") {
			t.Errorf("Events %q", got)
		}
		if s := ctrl.Stats(); s.Failing != 1 || time.Since(s.FailingSince) < 5*time.Hour {
			t.Errorf("Stats %+v", s)
		}
	})
}

// TestFailuresOfTwoKindsShareTheirBackoff checks that a key that alternates between two kinds of failures is delayed,
// and stalls, like a key with one kind.
func TestFailuresOfTwoKindsShareTheirBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs atomic.Int64
		c := w.config(func(context.Context, unstructuredObject) error {
			if runs.Add(1)%2 == 0 {
				return context.DeadlineExceeded
			}
			return errors.New("no")
		})
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(2 * time.Hour)
		before := runs.Load()
		time.Sleep(time.Hour)
		if n := runs.Load() - before; n > 100 {
			t.Errorf("%d runs an hour of a key that has failed for two hours", n)
		}
	})
}

// throttledError is the error of a server that asks for a delay.
type throttledError time.Duration

func (t throttledError) Error() string             { return "throttled" }
func (t throttledError) RetryAfter() time.Duration { return time.Duration(t) }

// The error of a run that was brought forward is treated like that of any other run: a server's Retry-After is
// respected, and a class without retries is given up.
func TestContract17_RunBroughtForwardKeepsPolicyOfItsError(t *testing.T) {
	const never = retry.Class("never")
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"another error":           {errors.New("no luck"), []string{"0s", "55m0s", "57m0s", "1h0m0s"}},
		"Retry-After":             {throttledError(10 * time.Minute), []string{"0s", "55m0s", "57m0s", "1h5m0s"}},
		"a shorter Retry-After":   {throttledError(time.Second), []string{"0s", "55m0s", "57m0s", "1h0m0s"}},
		"a class without retries": {retry.WithClass(errors.New("never"), never), []string{"0s", "55m0s", "57m0s"}},
		"a terminal error":        {controller.Terminal(errors.New("never")), []string{"0s", "55m0s", "57m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				began, n := time.Now(), 0
				c := w.config(func(context.Context, unstructuredObject) error {
					runs.add("%s", time.Since(began))
					n++
					if n == 2 {
						return test.err
					}
					return errors.New("no luck")
				})
				c.Sources = []controller.Source{source.OwnerLabel(w.parts(kube.Selection{}), "widget")}
				c.Retry.Every = retry.Policy{Base: time.Hour, Jitter: -1}
				c.Retry.Policies = map[retry.Class]retry.Policy{never: {MaxRetries: -1}}
				w.put("widgets", "a", 1)
				w.run(c)
				time.Sleep(55 * time.Minute)
				if err := w.create(t.Context(), "parts", "Part", "p", "widget", "a"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				w.put("widgets", "a", 2)
				time.Sleep(10 * time.Minute)
				if got := runs.take(); !slices.Equal(got, test.want) {
					t.Errorf("runs: %q, want %q", got, test.want)
				}
			})
		})
	}
}

// A run that is brought forward waits for Queue.Debounce like any other. Changes within that time are one run, and the
// end of the backoff stays.
func TestContract17_RunBroughtForwardIsDebounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		began := time.Now()
		c := w.config(func(context.Context, unstructuredObject) error {
			runs.add("%s", time.Since(began).Round(time.Second))
			return errors.New("no luck")
		})
		c.Sources = []controller.Source{source.OwnerLabel(w.parts(kube.Selection{}), "widget")}
		c.Retry.Every = retry.Policy{Base: time.Hour, Factor: 2, Max: 4 * time.Hour, Jitter: -1}
		c.Queue.Debounce = 10 * time.Second
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(30 * time.Minute)
		for i := range 5 { // each is a change of the spec within the debounce time of the one before
			if err := w.create(t.Context(), "parts", "Part", fmt.Sprint("p", i), "widget", "a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		time.Sleep(10 * time.Minute)
		w.put("parts", "p0", 2) // the second in this backoff
		time.Sleep(time.Hour)
		if got, want := runs.take(), []string{"0s", "30m30s", "1h0m0s"}; !slices.Equal(got, want) {
			t.Errorf("runs: %q, want %q", got, want)
		}
	})
}

// The first part of a key without an object need not be a namespace.
func TestKeyWithoutObjectIsRetriedInTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		put(server, "a", "shop/a")
		teams, _ := teamsOf(t, server)
		var works atomic.Bool
		c, runs := teamConfig(func(context.Context, team) error {
			if !works.Load() {
				return errtest.NamespaceTerminating("shop")
			}
			return nil
		}, teams)
		c.ResyncInterval = time.Minute
		startTeams(t, c)
		time.Sleep(time.Minute)
		works.Store(true) // somebody has created the namespace again
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if lines := runs.take(); len(lines) < 2 {
			t.Errorf("runs %q, want a retry or a resync", lines)
		}
	})
}

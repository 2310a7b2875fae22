package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// TestContract02_LaterGenerationRunsAfterTerminal checks a new generation that the informer stores during a run. The
// run returns Terminal before the controller is notified of the change. The new generation must still be handled.
func TestContract02_LaterGenerationRunsAfterTerminal(t *testing.T) {
	for _, kind := range []string{"Handler", "Reconciler"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var seen journal
				c := w.config(nil)
				widgets, err := informer.New(informer.Config[unstructuredObject]{Retriever: c.Retriever, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer widgets.Subscribe(func(c informer.Change) {
					if c.Type == informer.Updated {
						time.Sleep(4 * time.Second) // stored, but the controller is not notified yet
					}
				})()
				handle := func(generation int64) error {
					seen.add("generation %d", generation)
					time.Sleep(2 * time.Second)
					return controller.Terminal(errors.New("this will never do"))
				}
				c.Retriever, c.Informer = nil, widgets
				c.Handler = func(_ context.Context, widget unstructuredObject) error {
					return handle(widget.GetGeneration())
				}
				if kind == "Reconciler" {
					c.Handler = nil
					c.Reconciler = func(_ context.Context, key kube.Key) error {
						widget, _, err := widgets.Get(key)
						return errors.Join(err, handle(widget.GetGeneration()))
					}
				}
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				time.Sleep(time.Second)
				w.put("widgets", "a", 2)
				time.Sleep(time.Minute)
				if got := seen.take(); !slices.Equal(got, []string{"generation 1", "generation 2"}) {
					t.Errorf("the handler has seen %q, want both generations\n%s", got, ctrl.Explain(key("a")))
				}
			})
		})
	}
}

// TestContract17_ReplacedObjectInheritsNoFailures checks that an object that replaces another one of the same name
// inherits neither its failures, its backoff nor its stalled state.
func TestContract17_ReplacedObjectInheritsNoFailures(t *testing.T) {
	never := func(controller.Cause) bool { return false }
	type test struct {
		failure   error
		policy    retry.Policy
		predicate informer.Predicate
		attempts  []string // of the new object
	}
	failed := errors.New("no luck")
	for name, test := range map[string]test{
		"back-off":  {failed, retry.Policy{Base: time.Hour, Jitter: -1, Factor: 1}, nil, []string{"attempt 0", "attempt 1"}},
		"exhausted": {failed, retry.Policy{Base: time.Second, Jitter: -1, Factor: 1, MaxRetries: 2}, nil, []string{"attempt 0", "attempt 1", "attempt 2"}},
		"terminal":  {controller.Terminal(failed), retry.Policy{}, nil, []string{"attempt 0"}},
		"terminal, and the predicate drops the new object": {controller.Terminal(failed), retry.Policy{}, func(c informer.Change) bool {
			return c.Type == informer.Listed
		}, []string{"attempt 0"}},
	} {
		for _, kind := range []string{"Handler", "Reconciler", "Deleted"} {
			for _, replaced := range []string{"seen", "unseen"} {
				t.Run(fmt.Sprintf("%s, %s, the deletion is %s", name, kind, replaced), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						var runs journal
						var first string // the uid of the first object
						handle := func(ctx context.Context, uid string) error {
							run, _ := controller.RunFrom(ctx)
							if uid != first {
								runs.add("attempt %d", run.Attempt)
							}
							return test.failure
						}
						c := w.config(func(ctx context.Context, widget unstructuredObject) error {
							return handle(ctx, string(widget.GetUID()))
						})
						c.ResyncInterval = 90 * time.Minute
						switch kind {
						case "Reconciler":
							c.Handler = nil
							var widgets *informer.Informer[unstructuredObject]
							c.Reconciler = func(ctx context.Context, key kube.Key) error {
								if widget, found, _ := widgets.Get(key); found {
									return handle(ctx, string(widget.GetUID()))
								}
								return nil
							}
							var err error
							if widgets, err = informer.New(informer.Config[unstructuredObject]{Retriever: c.Retriever, Logger: slog.New(slog.DiscardHandler)}); err != nil {
								t.Fatal(err)
							}
							c.Retriever, c.Informer = nil, widgets
						case "Deleted":
							c.Deleted = func(context.Context, unstructuredObject, bool) error { return nil }
						}
						c.Queue.EndBackoffIf, c.Predicate = never, test.predicate
						c.Retry.Every = test.policy
						w.put("widgets", "a", 1)
						first = string(w.uid("widgets", "a"))
						ctrl := w.run(c)
						time.Sleep(10 * time.Second)
						if replaced == "unseen" {
							w.HoldWatches("widgets")
						}
						w.remove("widgets", "a")
						if replaced == "seen" && kind == "Reconciler" {
							// Otherwise the run for the deletion may read the new object. The controller cannot know that: the
							// failure is not counted for the new object, which then has two runs with attempt 0.
							synctest.Wait()
						}
						w.put("widgets", "a", 2)
						if replaced == "unseen" {
							w.Break("widgets", true)
						}
						time.Sleep(3 * time.Hour)
						got := runs.take()
						if len(got) < len(test.attempts) || !slices.Equal(got[:len(test.attempts)], test.attempts) {
							t.Errorf("the new object has runs %q, want %q\n%s", got, test.attempts, ctrl.Explain(key("a")))
						}
						w.remove("widgets", "a")
						time.Sleep(3 * time.Hour)
						expectNoFailures(t, "when no object is left", ctrl)
					})
				})
			}
		}
	}
}

// TestOrdinaryFailureEndsTerminal checks a key that failed with a terminal error, ran for another reason and then
// failed with an ordinary error. A change of its object ends its backoff, as for every other key.
func TestOrdinaryFailureEndsTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		var began atomic.Int32
		keys := make(chan kube.Key)
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			if first := began.Add(1) == 1; first {
				return controller.Terminal(errors.New("never"))
			}
			return errors.New("not now")
		})
		c.Sources = []controller.Source{source.Channel("bell", keys)}
		c.Retry.Every = retry.Policy{Base: time.Hour, Jitter: -1}
		w.put("widgets", "a", 1)
		w.run(c)
		synctest.Wait()
		keys <- key("a")
		time.Sleep(time.Second)
		w.touch("widgets", "a")
		time.Sleep(time.Second)
		if got := runs.take(); len(got) != 3 {
			t.Errorf("handled %q, want a third run for the change of the labels", got)
		}
	})
}

// touch changes an object's labels as another client, which leaves its generation unchanged.
func (w *world) touch(resource, name string) {
	w.Edit(resource, key(name), "somebody", func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["labels"] = map[string]any{"at": fmt.Sprint(time.Now().UnixNano())}
		return true
	})
}

// TestContract25_DeletedIsCalledForEachReplacedObject checks that Deleted is called for each object in order. Two
// objects are deleted before the first call, and one is created and deleted during a call.
func TestContract25_DeletedIsCalledForEachReplacedObject(t *testing.T) {
	for name, failure := range map[string]error{
		"succeeds":          nil,
		"fails once":        errors.New("not now"),
		"fails for good":    controller.Terminal(errors.New("never")),
		"panics till given": errors.New("panic"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var seen journal
				busy := make(chan struct{})
				failed := 0
				c := w.config(func(_ context.Context, widget unstructuredObject) error {
					if widget.GetName() == "busy" {
						<-busy
					}
					return nil
				})
				c.Workers, c.Retry.Every.MaxRetries = 1, 2
				c.Deleted = func(_ context.Context, last unstructuredObject, _ bool) error {
					value := fmt.Sprint(last.Object["spec"].(map[string]any)["value"])
					seen.add("%s", value)
					switch {
					case value == "1" && failure != nil && failure.Error() == "panic":
						panic(failure)
					case value == "1" && failed == 0:
						failed++
						return failure
					case value == "2": // another object is created and deleted
						w.put("widgets", "a", "3")
						time.Sleep(time.Second)
						w.remove("widgets", "a")
						time.Sleep(time.Second)
					}
					return nil
				}
				w.put("widgets", "a", "1")
				ctrl := w.run(c)
				synctest.Wait()
				w.put("widgets", "busy", "1")
				synctest.Wait()
				w.remove("widgets", "a")
				time.Sleep(time.Second)
				w.put("widgets", "a", "2")
				time.Sleep(time.Second)
				w.remove("widgets", "a")
				time.Sleep(time.Second)
				close(busy)
				time.Sleep(time.Hour)
				if got := slices.Compact(seen.take()); !slices.Equal(got, []string{"1", "2", "3"}) {
					t.Errorf("Deleted was called for %q, want each of three objects", got)
				}
				expectNoFailures(t, "at the end", ctrl)
			})
		})
	}
}

// TestDeletionsOfOneNameAreBounded checks that the number of kept deletions is bounded while objects are created and deleted
// and Deleted does not return.
func TestDeletionsOfOneNameAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var seen, logs journal
		busy := make(chan struct{})
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		c.Logger = logs.logger(slog.LevelWarn)
		c.Deleted = func(_ context.Context, last unstructuredObject, _ bool) error {
			seen.add("%v", last.Object["spec"])
			<-busy
			return nil
		}
		w.run(c)
		for i := range 40 {
			w.put("widgets", "a", i)
			time.Sleep(time.Second)
			w.remove("widgets", "a")
			time.Sleep(time.Second)
		}
		close(busy)
		time.Sleep(time.Minute)
		got := seen.take()
		if len(got) != 17 || got[0] != "map[value:0]" || got[16] != "map[value:39]" {
			t.Errorf("Deleted was called for %q, want the first object and the last 16", got)
		}
		if got := logs.take(); len(got) != 24 {
			t.Errorf("logged %d lines, want one for each object that was dropped: %q", len(got), got)
		}
	})
}

// TestFailureOfReplacedObjectIsNotInherited checks that a failed run of an object that is replaced during the
// run is not counted for the next object.
func TestFailureOfReplacedObjectIsNotInherited(t *testing.T) {
	for name, seen := range map[string]bool{"the deletion is seen": true, "the deletion is unseen": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				c := w.config(func(ctx context.Context, widget unstructuredObject) error {
					run, _ := controller.RunFrom(ctx)
					runs.add("%v attempt %d", widget.Object["spec"], run.Attempt)
					time.Sleep(time.Second)
					return errors.New("no")
				})
				c.Retry.Every = retry.Policy{Base: time.Minute, Jitter: -1, MaxRetries: 1}
				w.put("widgets", "a", 1)
				w.run(c)
				time.Sleep(time.Second / 2)
				if !seen {
					w.HoldWatches("widgets")
				}
				w.remove("widgets", "a")
				w.put("widgets", "a", 2)
				if !seen {
					w.Break("widgets", true)
				}
				time.Sleep(time.Hour)
				want := []string{"map[value:1] attempt 0", "map[value:2] attempt 0", "map[value:2] attempt 1"}
				if got := runs.take(); !slices.Equal(got, want) {
					t.Errorf("runs %q, want %q", got, want)
				}
			})
		})
	}
}

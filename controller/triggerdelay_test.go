package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/retry"
)

// enqueuerOf adds a source to a config, and returns a function that enqueues a key for it while the controller runs.
func enqueuerOf(c *controller.Config[unstructuredObject]) func(name string, why controller.Trigger) {
	running := make(chan controller.Enqueue, 1)
	c.Sources = append(c.Sources, controller.SourceFunc(func(ctx context.Context, e controller.Enqueue) error {
		running <- e
		<-ctx.Done()
		return nil
	}))
	return func(name string, why controller.Trigger) {
		enqueue := <-running
		running <- enqueue
		enqueue(key(name), why)
	}
}

// TestTriggerAfter checks when a delayed trigger runs its key, and its combination with other causes.
func TestTriggerAfter(t *testing.T) {
	t.Parallel()
	delayed := controller.Trigger{After: 10 * time.Second, Detail: "delayed"}
	fromList := delayed
	fromList.FromList = true
	type steps func(w *world, enqueue func(string, controller.Trigger))
	once := func(why controller.Trigger) steps {
		return func(_ *world, enqueue func(string, controller.Trigger)) { enqueue("a", why) }
	}
	for name, test := range map[string]struct {
		configure func(c *controller.Config[unstructuredObject])
		results   []error // of the runs after the first
		steps     steps
		want      []string // after the first run
	}{
		"alone":          {steps: once(delayed), want: []string{"10s: func: triggered (delayed)"}},
		"negative":       {steps: once(controller.Trigger{After: -1}), want: []string{"0s: func: triggered"}},
		"FromList":       {steps: once(fromList), want: []string{"10s: func: triggered (delayed)"}},
		"no such object": {steps: func(_ *world, enqueue func(string, controller.Trigger)) { enqueue("other", delayed) }},
		"debounced": {
			configure: func(c *controller.Config[unstructuredObject]) { c.Queue.Debounce = time.Second },
			steps:     once(delayed), want: []string{"10s: func: triggered (delayed)"},
		},
		"an earlier change is merged": {
			steps: func(w *world, enqueue func(string, controller.Trigger)) {
				enqueue("a", delayed)
				time.Sleep(time.Second)
				w.put("widgets", "a", 5)
			},
			want: []string{"1s: func: triggered (delayed), updated (spec) by somebody"},
		},
		"the earlier of two triggers wins": {
			steps: func(_ *world, enqueue func(string, controller.Trigger)) {
				enqueue("a", delayed)
				enqueue("a", controller.Trigger{After: time.Second, Detail: "sooner"})
			},
			want: []string{"1s: func: triggered (delayed), func: triggered (sooner)"},
		},
		"RequeueAfter does not prolong it": {
			results: []error{controller.RequeueAfter(time.Minute, "later")},
			steps: func(_ *world, enqueue func(string, controller.Trigger)) {
				enqueue("a", controller.Trigger{})
				enqueue("a", delayed)
				time.Sleep(time.Second)
				enqueue("a", delayed)
			},
			want: []string{"0s: func: triggered, func: triggered (delayed)", "11s: func: triggered (delayed)"},
		},
		"it ends a longer backoff": {
			configure: func(c *controller.Config[unstructuredObject]) {
				c.Retry.Every = retry.Policy{Base: time.Minute, Jitter: -1}
			},
			results: []error{errors.New("broken")},
			steps: func(_ *world, enqueue func(string, controller.Trigger)) {
				enqueue("a", controller.Trigger{})
				time.Sleep(time.Second)
				enqueue("a", delayed)
			},
			want: []string{"0s: func: triggered", "11s: retry 1 (error), func: triggered (delayed)"},
		},
		"it is enqueued while the key is processing": {
			configure: func(c *controller.Config[unstructuredObject]) {
				handle := c.Handler
				c.Handler = func(ctx context.Context, widget unstructuredObject) error {
					defer time.Sleep(2 * time.Second)
					return handle(ctx, widget)
				}
			},
			steps: func(_ *world, enqueue func(string, controller.Trigger)) {
				enqueue("a", controller.Trigger{})
				time.Sleep(time.Second)
				enqueue("a", delayed)
			},
			want: []string{"0s: func: triggered", "11s: func: triggered (delayed)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				var began time.Time
				results := append([]error{nil}, test.results...)
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					run, _ := controller.RunFrom(ctx)
					runs.add("%s: %s", run.Started.Sub(began).Round(time.Millisecond), run.Causes)
					if len(results) == 0 {
						return nil
					}
					result := results[0]
					results = results[1:]
					return result
				})
				enqueue := enqueuerOf(&c)
				if test.configure != nil {
					test.configure(&c)
				}
				w.put("widgets", "a", 0)
				w.run(c)
				time.Sleep(time.Minute)
				synctest.Wait()
				runs.take()
				began = time.Now()
				test.steps(w, enqueue)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if diff := cmp.Diff(test.want, runs.take()); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// earlySource enqueues the key of a delayed trigger before any run.
type earlySource struct{ after time.Duration }

func (s earlySource) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Name: "early", Start: func(ctx context.Context, enqueue controller.Enqueue) (func() error, error) {
		enqueue(key("a"), controller.Trigger{After: s.after})
		return func() error { <-ctx.Done(); return nil }, nil
	}}, nil
}

// TestTriggerAfterDoesNotDelayFirstPass checks that a delayed trigger for a listed object does not count as its
// first run.
func TestTriggerAfterDoesNotDelayFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		began := time.Now()
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			runs.add("%s %s", widget.GetName(), time.Since(began).Round(time.Second))
			return nil
		})
		c.Predicate = func(informer.Change) bool { return true }
		c.Sources = []controller.Source{earlySource{time.Hour}}
		w.put("widgets", "a", 0)
		w.run(c)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got, want := fmt.Sprint(runs.take()), "[a 0s]"; got != want {
			t.Errorf("runs %s, want %s", got, want)
		}
	})
}

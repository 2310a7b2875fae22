package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// HotLoops.MaxPause has its effect also on keys without an object.
func TestHotLoopOfNoObject(t *testing.T) {
	for maxPause, want := range map[time.Duration]int{0: 130, 100 * time.Millisecond: 400, -1: 0} {
		t.Run(maxPause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int64
				c, _ := teamConfig(func(context.Context, team) error {
					runs.Add(1)
					return controller.RequeueAfter(time.Millisecond)
				}, controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
					enqueue(controller.EncodeKey(team{"cloud", "a"}), controller.Trigger{})
					<-ctx.Done()
					return nil
				}))
				c.HotLoops.MaxPause = maxPause
				ctrl := startTeams(t, c)
				time.Sleep(30 * time.Second)
				if n := int(runs.Load()); want > 0 && (n < want-5 || n > want+5) || want == 0 && n < 20_000 {
					t.Errorf("%d runs, want %d", n, want)
				}
				if problems := ctrl.Problems(); len(problems) != 1 || problems[0].Type != controller.ProblemHotLoop {
					t.Errorf("problems %v", problems)
				}
			})
		})
	}
}

// A key in a hot loop, held back or not, does not extend the drain of a queue.
func TestDrainQueueDoesNotWaitForHotLoop(t *testing.T) {
	for _, maxPause := range []time.Duration{0, -1} {
		t.Run(maxPause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.config(func(context.Context, unstructuredObject) error {
					return controller.RequeueAfter(time.Millisecond)
				})
				c.HotLoops.MaxPause, c.Shutdown.DrainQueue = maxPause, true
				w.put("widgets", "a", 1)
				ctrl, err := controller.New(c)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- ctrl.Run(ctx) }() // waited for below
				time.Sleep(10*time.Second + 500*time.Microsecond)
				if problems := ctrl.Problems(); len(problems) != 1 {
					t.Errorf("problems %v", problems)
				}
				began := time.Now()
				stop()
				if err := <-ended; err != nil || time.Since(began) > time.Second {
					t.Errorf("Run ended after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// An interrupted key in a hot loop runs after all others, and is not interrupted anymore after its first run, held back
// or not.
func TestHotLoopOfInterruptedKey(t *testing.T) {
	for _, maxPause := range []time.Duration{0, -1} {
		t.Run(maxPause.String(), func(t *testing.T) {
			dir := interruptedDir(t, map[string]int{"a": 2})
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				server.Put(object("a", "1"))
				server.Put(object("b", "1"))
				var order journal
				c := controller.Config[configMap]{
					Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler), StateDir: dir,
					ResyncInterval: -1,
					Handler: func(_ context.Context, obj configMap) error {
						order.add("%s", obj.GetName())
						if obj.GetName() == "b" {
							return nil
						}
						return controller.RequeueAfter(time.Millisecond)
					},
				}
				c.HotLoops.MaxPause = maxPause
				ctrl, err := controller.New(c)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- ctrl.Run(ctx) }() // waited for below
				time.Sleep(10*time.Second + 500*time.Microsecond)
				if got := order.take(); len(got) < 100 || got[0] != "b" {
					t.Errorf("%d runs, the first is %q", len(got), got[:min(len(got), 2)])
				}
				if problems := ctrl.Problems(); len(problems) != 1 || problems[0].Type != controller.ProblemHotLoop {
					t.Errorf("problems %v", problems)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			wantInterrupted(t, dir, map[string]int{})
		})
	}
}

// Writes are awaited by informers with field selectors if these select the object, in each of several combined
// Retrievers, also after SetRetriever.
func TestContract07_FieldSelectorsOfCombinedRetrievers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		named := func(names ...string) informer.Retriever[unstructuredObject] {
			var all []informer.Retriever[unstructuredObject]
			for _, name := range names {
				all = append(all, informer.RetrieveSelected[unstructuredObject](w.cluster, informer.Selection{
					Kind: kindOf("Part"), FieldSelector: "metadata.name=" + name,
				}))
			}
			return informer.Combine(all...)
		}
		parts, err := informer.New(informer.Config[unstructuredObject]{
			Name: "parts", Retriever: named("p", "q"), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		var wrong journal
		value := 0
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			value++
			for _, name := range []string{"p", "q", "r"} {
				if err := w.patch(ctx, "parts", name, fmt.Sprintf(`{"spec":{"value":%d}}`, value)); err != nil {
					return err
				}
			}
			if err := controller.WaitForOwnWrites(ctx); err != nil {
				return err
			}
			for part, err := range parts.All() {
				if err != nil || part.Object["spec"].(map[string]any)["value"] != int64(value) {
					wrong.add("%s has %v in run %d: %v", part.GetName(), part.Object["spec"], value, err)
				}
			}
			return nil
		})
		c.Reads = []informer.Any{parts}
		for _, name := range []string{"p", "q", "r"} {
			w.put("parts", name, 0)
		}
		w.put("widgets", "a", 0)
		ctrl := w.run(c)
		synctest.Wait()
		for i, names := range [][]string{{"p", "q"}, {"r", "q"}, {"r"}, {"r", "p", "q"}, {"x"}} {
			if err := parts.SetRetriever(t.Context(), named(names...)); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w.put("widgets", "a", i+1)
			synctest.Wait()
			if value != i+2 || time.Since(began) > time.Second {
				t.Errorf("%s: %d runs after %s, want %d\n%s", names, value, time.Since(began), i+2,
					ctrl.Explain(key("a")))
			}
		}
		if got := wrong.take(); len(got) > 0 || len(ctrl.Problems()) > 0 {
			t.Errorf("stale parts %s, problems %v", strings.Join(got, "; "), ctrl.Problems())
		}
	})
}

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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Runs.MaxPause has its effect also on keys without an object.
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
				c.Runs.MaxPause = maxPause
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

// A handler that replaces a child for each edit of the owner, or for each new owner, makes progress. One that replaces it
// without a reason is in a loop.
func TestReplacedChildrenAreHotLoopOnlyWithoutNewDesiredState(t *testing.T) {
	for name, test := range map[string]struct {
		next       func(w *world, i int)
		reconciler bool
		want       int
	}{
		"edits":               {next: func(w *world, i int) { w.put("widgets", "a", i) }},
		"edits, a Reconciler": {next: func(w *world, i int) { w.put("widgets", "a", i) }, reconciler: true},
		"owner recreated":     {next: func(w *world, i int) { w.remove("widgets", "a"); w.put("widgets", "a", i) }},
		"status of the owner": {next: func(w *world, i int) {
			w.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool { obj["status"] = map[string]any{"i": int64(i)}; return true })
		}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				replace := func(ctx context.Context) error {
					if err := w.objects("parts").Delete(ctx, "p", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
						return err
					}
					return w.create(ctx, "parts", "Part", "p")
				}
				c := w.config(func(ctx context.Context, _ unstructuredObject) error { return replace(ctx) })
				if test.reconciler {
					c.Handler, c.Reconciler = nil, func(ctx context.Context, _ kube.Key) error { return replace(ctx) }
				}
				w.put("widgets", "a", -1)
				ctrl := w.run(c)
				for i := range 60 {
					time.Sleep(2 * time.Second)
					test.next(w, i)
				}
				synctest.Wait()
				if problems := ctrl.Problems(); len(problems) != test.want {
					t.Errorf("problems %v, want %d", problems, test.want)
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
				c.Runs.MaxPause, c.Runs.DrainQueue = maxPause, true
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
					Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler), Runs: controller.RunsConfig{StateDir: dir},
					ResyncInterval: -1,
					Handler: func(_ context.Context, obj configMap) error {
						order.add("%s", obj.GetName())
						if obj.GetName() == "b" {
							return nil
						}
						return controller.RequeueAfter(time.Millisecond)
					},
				}
				c.Runs.MaxPause = maxPause
				ctrl, err := controller.New(c)
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, ctrl.Run)
				time.Sleep(10*time.Second + 500*time.Microsecond)
				if got := order.take(); len(got) < 100 || got[0] != "b" {
					t.Errorf("%d runs, the first is %q", len(got), got[:min(len(got), 2)])
				}
				if problems := ctrl.Problems(); len(problems) != 1 || problems[0].Type != controller.ProblemHotLoop {
					t.Errorf("problems %v", problems)
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
				all = append(all, informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{
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
			for part, err := range parts.List(informer.Query{}) {
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

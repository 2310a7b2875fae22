package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// in puts a widget into a namespace.
func (w *world) in(namespace, name string, value any) {
	w.Edit("widgets", kube.Key{Namespace: namespace, Name: name}, "somebody", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"value": value}
		return true
	})
}

// TestContract16_NamespacesTakeTurns checks that a namespace with many keys delays another one by at most its share.
func TestContract16_NamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var order journal
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			time.Sleep(10 * time.Millisecond)
			order.add("%s", widget.GetNamespace())
			return nil
		})
		c.Workers = 1
		w.run(c)
		synctest.Wait()
		for i := range 500 {
			w.in("noisy", fmt.Sprint("w", i), 1)
		}
		for i := range 5 {
			w.in("quiet", fmt.Sprint("w", i), 1)
		}
		time.Sleep(200 * time.Millisecond)
		if n := len(slices.DeleteFunc(order.take(), func(s string) bool { return s != "quiet" })); n != 5 {
			t.Errorf("of 5 keys of a quiet namespace %d were handled among the first 20", n)
		}
	})
}

// TestContract16_GroupsHaveALimit checks that at most GroupLimit keys of a group are handled concurrently.
func TestContract16_GroupsHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		busy, most := map[string]int{}, map[string]int{}
		lock := make(chan struct{}, 1)
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			tenant := widget.GetName()[:1]
			lock <- struct{}{}
			busy[tenant]++
			most[tenant] = max(most[tenant], busy[tenant])
			<-lock
			time.Sleep(time.Second)
			lock <- struct{}{}
			busy[tenant]--
			<-lock
			return nil
		})
		c.Workers, c.Queue.GroupLimit = 10, 2
		c.Queue.Group = func(key kube.Key) string { return key.Name[:1] }
		for i := range 8 {
			w.put("widgets", fmt.Sprint("a", i), 1)
			w.put("widgets", fmt.Sprint("b", i), 1)
		}
		w.run(c)
		time.Sleep(time.Minute)
		synctest.Wait()
		if most["a"] != 2 || most["b"] != 2 {
			t.Errorf("handled at the same time: %v, want 2 of each", most)
		}
	})
}

// TestContract16_HighPriorityRunsFirst checks that a key with high priority is handled before others.
func TestContract16_HighPriorityRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var order journal
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			time.Sleep(100 * time.Millisecond)
			order.add("%s", widget.GetName())
			return nil
		})
		c.Workers = 1
		c.Queue.Priority = func(change informer.Change) controller.Priority {
			if strings.HasPrefix(change.Key.Name, "urgent") {
				return controller.PriorityHigh
			}
			return controller.PriorityNormal
		}
		w.run(c)
		synctest.Wait()
		for i := range 10 {
			w.put("widgets", fmt.Sprint("w", i), 1)
		}
		w.put("widgets", "urgent", 1)
		time.Sleep(time.Minute)
		if at := slices.Index(order.take(), "urgent"); at > 1 {
			t.Errorf("what is urgent was handled as number %d", at)
		}
	})
}

// TestContract16_DebounceWaitsForQuiet checks that a run waits until changes stop, but at most for MaxDebounce times
// Debounce.
func TestContract16_DebounceWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var at []time.Duration
		var began time.Time
		c := w.config(func(context.Context, unstructuredObject) error { at = append(at, time.Since(began)); return nil })
		c.Queue.Debounce = time.Second
		w.put("widgets", "a", 0)
		w.run(c)
		time.Sleep(time.Minute)
		synctest.Wait()
		at, began = nil, time.Now()
		for i := range 5 {
			w.put("widgets", "a", i+1)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) != 1 || at[0] != 3*time.Second {
			t.Errorf("five changes in 2 s: runs after %v, want one after 3 s", at)
		}
		at, began = nil, time.Now()
		for i := range 40 {
			w.put("widgets", "a", -i)
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait()
		if len(at) == 0 || at[0] != workqueue.MaxDebounce*time.Second {
			t.Errorf("changes for 20 s: runs after %v, want the first after 10 s", at)
		}
	})
}

// TestContract16_DrainQueueHandlesReadyKeys checks that DrainQueue handles the keys that are ready at shutdown, and
// that they are not started without it.
func TestContract16_DrainQueueHandlesReadyKeys(t *testing.T) {
	for name, test := range map[string]struct {
		drain bool
		time  time.Duration
		want  int
	}{
		"left to the next start":  {false, time.Minute, 1},
		"drained":                 {true, time.Minute, 10},
		"as far as there is time": {true, 3900 * time.Millisecond, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				handled := 0
				c := w.config(func(context.Context, unstructuredObject) error {
					time.Sleep(time.Second)
					handled++
					return nil
				})
				c.Workers, c.Runs.DrainQueue, c.Runs.DrainTimeout = 1, test.drain, test.time
				for i := range 10 {
					w.put("widgets", fmt.Sprint("w", i), 1)
				}
				ctrl, err := controller.New(c)
				if err != nil {
					t.Fatal(err)
				}
				stop := start(t, ctrl)
				time.Sleep(500 * time.Millisecond)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if handled != test.want {
					t.Errorf("%d of 10 keys were handled, want %d", handled, test.want)
				}
			})
		})
	}
}

// TestContract21_FailingWatchIsProblem checks that Problems contains an error that Ready returns.
func TestContract21_FailingWatchIsProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		ctrl := w.run(c)
		synctest.Wait()
		w.Hook(func(*http.Request, func() *http.Response) (*http.Response, error) {
			return nil, errors.New("no route to host")
		})
		w.Break("widgets", false)
		time.Sleep(time.Minute)
		problems := ctrl.Problems()
		if len(problems) != 1 || problems[0].Type != controller.ProblemInformer || !strings.Contains(problems[0].Message, "no route to host") {
			t.Errorf("problems %+v", problems)
		}
	})
}

// problemd is a source that is never ready.
type problemd struct{ name string }

func (s problemd) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{
		Name:  s.name,
		Ready: func() error { return errors.New("the vendor does not answer") },
		Run:   func(ctx context.Context, _ controller.Enqueue) error { <-ctx.Done(); return nil },
	}, nil
}

// TestContract21_FailingSourceIsProblem checks that a source that is not ready is a problem, and makes the
// controller unready.
func TestContract21_FailingSourceIsProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		c.Sources = []controller.Source{problemd{"vendor"}}
		ctrl := w.run(c)
		synctest.Wait()
		problems := ctrl.Problems()
		if len(problems) != 1 || problems[0].Type != controller.ProblemSource || ctrl.Ready() == nil {
			t.Errorf("problems %+v, ready: %v", problems, ctrl.Ready())
		}
		c.Sources = []controller.Source{problemd{controller.SourceLoop}}
		if _, err := controller.New(c); err == nil || !strings.Contains(err.Error(), `has the name "loop"`) {
			t.Errorf("a source that takes the loop's name: %v", err)
		}
	})
}

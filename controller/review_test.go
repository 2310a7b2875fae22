package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// answerWithMetadata replaces an API server's response with the one that a metadata client requests: an object without
// its content.
func answerWithMetadata(t *testing.T, resp *http.Response) *http.Response {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		t.Error(err)
	}
	body, err = json.Marshal(map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"],
	})
	if err != nil {
		t.Error(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

// TestContract13_AnAnswerOfPartOfAnObjectProvesNothing checks a metadata client that writes twice. The responses do not
// contain the field that another client changed between the writes. The second write changes nothing, so the version in
// its response is that of the other client's write.
func TestContract13_AnAnswerOfPartOfAnObjectProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		first := true
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				return answerWithMetadata(t, do()), nil
			}
			return do(), nil
		})
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%v", widget.Object["spec"])
			if !first {
				return nil
			}
			first = false
			w.HoldWatches("widgets")
			err := w.patch(ctx, "widgets", "a", `{"metadata":{"annotations":{"seen":"yes"},"resourceVersion":"`+widget.GetResourceVersion()+`"}}`)
			w.put("widgets", "a", "foreign")
			return errors.Join(err, w.patch(ctx, "widgets", "a", `{"metadata":{"annotations":{"seen":"yes"}}}`))
		})
		w.put("widgets", "a", "1")
		ctrl := w.run(c)
		synctest.Wait()
		w.ReleaseWatches("widgets")
		time.Sleep(time.Minute)
		if got := runs.take(); !slices.Contains(got, "map[value:foreign]") {
			t.Errorf("the handler has seen %q, not the change by another hand\n%s", got, ctrl.Explain(key("a")))
		}
	})
}

// TestNegativeConsistencyTimeoutLetsEveryWriteMakeTheHandlerRun checks that every own write causes a run, even if the
// informer is faster than the response.
func TestNegativeConsistencyTimeoutLetsEveryWriteMakeTheHandlerRun(t *testing.T) {
	for name, slow := range map[string]time.Duration{"the answer comes first": 0, "the event comes first": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(informer.Selection{})
				var runs journal
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("%s", causesOf(ctx))
					if len(w.Keys("parts")) > 0 {
						return nil
					}
					return w.create(ctx, "parts", "Part", "p", "widget", "a")
				})
				c.Sources = []controller.Source{source.OwnerLabel(parts, "widget")}
				c.OwnWrites.ConsistencyTimeout = -1
				w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
					resp := do()
					if req.Method == http.MethodPost {
						time.Sleep(slow)
					}
					return resp, nil
				})
				w.put("widgets", "a", 1)
				w.run(c)
				time.Sleep(time.Minute)
				if got := runs.take(); len(got) != 2 {
					t.Errorf("handled %q, want two runs", got)
				}
			})
		})
	}
}

// gatedInformer is an informer with a gate: the check whether it shows a write blocks while gate is set.
type gatedInformer struct {
	*informer.Informer[unstructuredObject]
	mu   sync.Mutex
	gate chan struct{} // guarded by mu
}

func (g *gatedInformer) Kind() schema.GroupVersionKind {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return g.Informer.Kind()
}

func (g *gatedInformer) set(gate chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = gate
}

// TestAWriteThatOutlivesItsRunIsNotWaitedFor checks that no run waits for a write if its run ends between the response
// and the registration of the write. No later run would start or end that wait.
func TestAWriteThatOutlivesItsRunIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gated := &gatedInformer{Informer: w.parts(informer.Selection{})}
		gate := make(chan struct{})
		var logs, runs journal
		var outliving sync.WaitGroup
		first := true
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("run")
			if !first {
				return nil
			}
			first = false
			outliving.Go(func() {
				if err := w.patch(ctx, "widgets", "a", `{"status":{"ready":true}}`, "status"); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second) // the write has its response, and is about to be registered
			return nil
		})
		c.Reads = []informer.Any{gated}
		c.Logger = logs.logger(slog.LevelWarn)
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			resp := do()
			if req.Method == http.MethodPatch {
				gated.set(gate)
			}
			return resp, nil
		})
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(10 * time.Second)
		gated.set(nil)
		close(gate)
		outliving.Wait()
		if unseen := ctrl.Explain(key("a")).Unseen; len(unseen) != 0 {
			t.Errorf("when all is done, the key waits for %q", unseen)
		}
		w.put("widgets", "a", 2)
		time.Sleep(time.Minute)
		if got := logs.take(); len(got) != 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// deletions returns a hook for Config.Deleted that fails for objects with certain values.
func deletions(j *journal, fails map[string]error) func(context.Context, unstructuredObject, bool) error {
	return func(_ context.Context, last unstructuredObject, _ bool) error {
		value := fmt.Sprint(last.Object["spec"].(map[string]any)["value"])
		j.add("deleted %s", value)
		return fails[value]
	}
}

// TestDeletedThatFailsForGoodEndsThere checks that the hook is not called again after a terminal failure, and that the
// next object of the name is handled as if the hook had succeeded.
func TestDeletedThatFailsForGoodEndsThere(t *testing.T) {
	for name, failure := range map[string]error{
		"terminal":  controller.Terminal(errors.New("no such bucket")),
		"given up":  errors.New("no such bucket"),
		"succeeded": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var seen journal
				c := w.config(func(_ context.Context, widget unstructuredObject) error {
					seen.add("handled %v", widget.Object["spec"].(map[string]any)["value"])
					return nil
				})
				c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 2}}
				c.Deleted = deletions(&seen, map[string]error{"old": failure})
				w.put("widgets", "a", "old")
				ctrl := w.run(c)
				time.Sleep(time.Second)
				w.remove("widgets", "a")
				time.Sleep(time.Hour)
				if s := ctrl.Stats(); s.Failing != 0 || len(s.Problems) != 0 {
					t.Errorf("an hour after the object is gone, %d keys fail, problems %v", s.Failing, s.Problems)
				}
				seen.take()
				w.put("widgets", "a", "new")
				time.Sleep(time.Hour)
				if got := seen.take(); !slices.Equal(got, []string{"handled new"}) {
					t.Errorf("after the next object of the name has come: %q", got)
				}
			})
		})
	}
}

// TestDeletedThatFailsForGoodDoesNotStopTheNextObject checks that a terminal failure of the hook does not block the
// next object of the name, which already exists.
func TestDeletedThatFailsForGoodDoesNotStopTheNextObject(t *testing.T) {
	for name, failure := range map[string]error{
		"terminal": controller.Terminal(errors.New("no such bucket")),
		"given up": errors.New("no such bucket"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var seen journal
				c := w.config(func(_ context.Context, widget unstructuredObject) error {
					seen.add("handled %v", widget.Object["spec"].(map[string]any)["value"])
					return nil
				})
				c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 2}}
				c.Deleted = deletions(&seen, map[string]error{"old": failure})
				w.put("widgets", "a", "old")
				ctrl := w.run(c)
				time.Sleep(time.Second)
				w.remove("widgets", "a")
				w.put("widgets", "a", "new")
				time.Sleep(time.Hour)
				if got := seen.take(); !slices.Equal(slices.Compact(got), []string{"handled old", "deleted old", "handled new"}) {
					t.Errorf("seen %q", got)
				}
				if s := ctrl.Stats(); s.Failing != 0 || len(s.Problems) != 0 {
					t.Errorf("%d keys fail, problems %v", s.Failing, s.Problems)
				}
			})
		})
	}
}

// TestDeletedIsRetriedBeforeTheNextObjectIsHandled checks that the hook is retried with the deleted object before the
// next object of the name is handled.
func TestDeletedIsRetriedBeforeTheNextObjectIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var seen journal
		var succeeds atomic.Bool
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			seen.add("handled %v", widget.Object["spec"].(map[string]any)["value"])
			return nil
		})
		c.Deleted = func(ctx context.Context, last unstructuredObject, stale bool) error {
			if succeeds.Load() {
				return deletions(&seen, nil)(ctx, last, stale)
			}
			return errors.Join(deletions(&seen, nil)(ctx, last, stale), errors.New("not now"))
		}
		w.put("widgets", "a", "old")
		w.run(c)
		time.Sleep(time.Second)
		w.remove("widgets", "a")
		w.put("widgets", "a", "new")
		synctest.Wait()
		if got := seen.take(); slices.Contains(got, "handled new") || !slices.Contains(got, "deleted old") {
			t.Errorf("while the hook fails: %q", got)
		}
		succeeds.Store(true)
		time.Sleep(time.Hour)
		if got := seen.take(); len(got) < 2 || !slices.Equal(got[len(got)-2:], []string{"deleted old", "handled new"}) {
			t.Errorf("when it succeeds: %q", got)
		}
	})
}

// TestADeletionThatThePredicateDropsIsNotTold checks that the hook is not called and that the key has no problem left.
func TestADeletionThatThePredicateDropsIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var seen journal
		c := w.config(func(context.Context, unstructuredObject) error {
			seen.add("handled")
			return errors.New("not now")
		})
		c.Predicate = func(c informer.Change) bool { return c.Type != informer.Deleted }
		c.Deleted = deletions(&seen, nil)
		c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 1}}
		w.put("widgets", "a", "old")
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		if s := ctrl.Stats(); s.Problems[controller.ProblemStalled] != 1 {
			t.Fatalf("problems %v, want the key stalled", s.Problems)
		}
		w.remove("widgets", "a")
		time.Sleep(time.Minute)
		if s := ctrl.Stats(); len(s.Problems) != 0 {
			t.Errorf("when the object is gone, problems %v", s.Problems)
		}
		w.put("widgets", "a", "new")
		time.Sleep(time.Minute)
		if got := seen.take(); slices.Contains(got, "deleted old") {
			t.Errorf("seen %q", got)
		}
	})
}

// TestATimerIsNotSetForAnotherObjectOfTheName checks that a timer that a handler sets after its object was deleted and
// created again is not set for the new object.
func TestATimerIsNotSetForAnotherObjectOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		first := true
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			if !first {
				return nil
			}
			first = false
			time.Sleep(time.Second)
			return controller.SetTimer(ctx, "expiry", time.Minute)
		})
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(500 * time.Millisecond)
		w.remove("widgets", "a")
		w.put("widgets", "a", 2)
		time.Sleep(time.Hour)
		if got := runs.take(); strings.Contains(fmt.Sprint(got), "expiry") {
			t.Errorf("the next object of the name has the timer of the one before: %q", got)
		}
	})
}

// TestExplainWhileEverythingChanges gives the race detector concurrent calls of Explain and writes.
func TestExplainWhileEverythingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(informer.Selection{})
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			name := widget.GetName()
			var writes sync.WaitGroup
			for i := range 3 {
				writes.Go(func() { // waited for below
					_ = w.create(ctx, "parts", "Part", fmt.Sprint(name, i), "widget", name)
					_ = w.patch(ctx, "widgets", name, fmt.Sprintf(`{"status":{"n":%d}}`, i), "status")
				})
			}
			controller.SetTraceID(ctx, "trace")
			_ = controller.SetTimer(ctx, "again", time.Second)
			controller.LoggerFrom(ctx).Debug("writes")
			writes.Wait()
			switch widget.GetResourceVersion()[0] % 4 {
			case 0:
				return errors.New("no")
			case 1:
				return controller.RequeueAfter(time.Millisecond)
			case 2:
				panic("no")
			}
			return nil
		})
		c.Sources = []controller.Source{source.OwnerLabel(parts, "widget")}
		c.Stuck.After, c.Shutdown.DrainQueue, c.Stuck.Unready = time.Millisecond, true, true
		c.Deleted = func(context.Context, unstructuredObject, bool) error { return nil }
		ctrl := w.run(c)
		var others sync.WaitGroup
		for reader := range 3 {
			others.Go(func() { // waited for below
				for i := range testlength.Count(60, 300) {
					name := fmt.Sprint("w", i%5)
					switch reader {
					case 0:
						_ = ctrl.Explain(key(name)).String()
					case 1:
						_, _, _ = ctrl.RecentRuns(), ctrl.Problems(), ctrl.Queue(10)
					default:
						_, _ = ctrl.Stats(), ctrl.Ready()
					}
					time.Sleep(7 * time.Millisecond)
				}
			})
		}
		for i := range testlength.Count(80, 400) {
			name := fmt.Sprint("w", i%5)
			if i%17 == 0 && w.Object("widgets", key(name)) != nil {
				w.remove("widgets", name)
			} else {
				w.put("widgets", name, i)
			}
			time.Sleep(5 * time.Millisecond)
		}
		others.Wait()
	})
}

// TestFailuresOfTwoKindsBackOffTogether checks that a key that alternates between two kinds of failures is delayed, and
// stalls, like a key with one kind.
func TestFailuresOfTwoKindsBackOffTogether(t *testing.T) {
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

// TestATimerOfAReconcilerIsNotSetForAnotherObjectOfTheName checks that a timer that a Reconciler sets after its object
// was replaced is not set for the next object.
func TestATimerOfAReconcilerIsNotSetForAnotherObjectOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		first := true
		c := w.config(nil)
		c.Handler = nil
		c.Reconciler = func(ctx context.Context, _ kube.Key) error {
			runs.add("%s", causesOf(ctx))
			if !first {
				return nil
			}
			first = false
			time.Sleep(time.Second)
			return controller.SetTimer(ctx, "expiry", time.Minute)
		}
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(500 * time.Millisecond)
		w.remove("widgets", "a")
		w.put("widgets", "a", 2)
		time.Sleep(time.Hour)
		if got := runs.take(); strings.Contains(fmt.Sprint(got), "expiry") {
			t.Errorf("the next object of the name has the timer of the one before: %q", got)
		}
	})
}

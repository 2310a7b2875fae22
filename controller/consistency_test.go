package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// parts creates an informer of Parts.
func (w *world) parts(selection kube.Selection) *informer.Informer[unstructuredObject] {
	w.t.Helper()
	selection.Kind = kindOf("Part")
	parts, err := informer.New(informer.Config[unstructuredObject]{
		Name: "parts", Retriever: informer.RetrieveSelected[unstructuredObject](w.cluster, selection), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return parts
}

// otherInformers returns informers of Widgets and Parts that keep other forms of the objects than w.parts and the
// controller: only metadata, without some fields, changed, and of some objects.
func (w *world) otherInformers() (all []informer.Any) {
	w.t.Helper()
	add := func(i informer.Any, err error) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, i)
	}
	logger := slog.New(slog.DiscardHandler)
	for _, kind := range []string{"Widget", "Part"} {
		of := kube.Selection{Kind: kindOf(kind)}
		some := kube.Selection{Kind: kindOf(kind), LabelSelector: "widget=b"}
		whole := informer.RetrieveSelected[unstructuredObject](w.cluster, of)
		add(informer.New(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](w.cluster, of), Logger: logger,
		}))
		add(informer.New(informer.Config[unstructuredObject]{Retriever: whole, Logger: logger, Cut: []string{"spec", "status"}}))
		add(informer.New(informer.Config[unstructuredObject]{Retriever: whole, Logger: logger, Transform: func(obj unstructuredObject) error {
			delete(obj.Object, "spec")
			return nil
		}}))
		add(informer.New(informer.Config[unstructuredObject]{
			Retriever: informer.RetrieveSelected[unstructuredObject](w.cluster, some), Logger: logger,
		}))
	}
	return all
}

// lagging is the body of a watch whose events arrive late.
type lagging struct {
	io.ReadCloser
	lag func() time.Duration
}

func (l lagging) Read(p []byte) (int, error) {
	time.Sleep(l.lag())
	return l.ReadCloser.Read(p)
}

// TestContract07_HandlerReadsItsOwnWrites delays the watch of a handler that creates an object if the cache does not
// have it. Without the wait, the handler would create the object twice.
func TestContract07_HandlerReadsItsOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(kube.Selection{})
		var runs journal
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%s: %s", widget.GetName(), causesOf(ctx))
			n, err := parts.Count(informer.Query{Namespace: "ns"})
			if err != nil || n > 0 || widget.GetName() != "a" {
				return err
			}
			_, err = w.objects("parts").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Part", "metadata": map[string]any{"generateName": "part-"},
			}}, metav1.CreateOptions{})
			return err
		})
		c.Reads = []informer.Any{parts}
		c.Workers = 1
		w.HoldWatches("parts")
		w.put("widgets", "a", 1)
		w.put("widgets", "b", 1)
		ctrl := w.run(c)
		synctest.Wait()
		runs.take()
		w.put("widgets", "a", 2)
		time.Sleep(5 * time.Second)
		w.put("widgets", "b", 2) // does not wait for a's writes, though there is one worker
		synctest.Wait()
		if got := runs.take(); !slices.Equal(got, []string{"b: updated (spec) by somebody"}) {
			t.Errorf("before the informer showed the part, handled: %q", got)
		}
		if e := ctrl.Explained(key("a")); e.Queued == nil || e.Queued.State != "held" || len(e.Unseen) != 1 || !strings.HasPrefix(e.Unseen[0], "Part ns/part-") {
			t.Errorf("explanation of a held key:\n%s", e)
		}
		w.ReleaseWatches("parts")
		synctest.Wait()
		if got := runs.take(); !slices.Equal(got, []string{"a: updated (spec) by somebody"}) {
			t.Errorf("when the informer showed the part, handled: %q", got)
		}
		if keys := w.Keys("parts"); len(keys) != 1 {
			t.Errorf("parts %v, want one", keys)
		}
		if run := ctrl.Explained(key("a")).Runs[0]; run.Held.Round(time.Millisecond) != 5*time.Second {
			t.Errorf("the record says that the run was held for %s, want 5 s", run.Held)
		}
	})
}

// TestContract07_WaitIsBounded checks that an informer that never shows a write delays the key once, for
// Config.Runs.ConsistencyTimeout, and is reported once.
func TestContract07_WaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(kube.Selection{})
		var runs, logs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			return w.createPart(ctx)
		})
		c.Reads = []informer.Any{parts}
		c.Logger = logs.logger(slog.LevelWarn)
		w.put("widgets", "a", 1)
		w.HoldWatches("parts")
		ctrl := w.run(c)
		synctest.Wait()
		began := time.Now()
		w.put("widgets", "a", 2)
		for len(runs.take()) == 0 || time.Since(began) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began).Round(time.Second); took != 10*time.Second {
			t.Errorf("the key ran after %s, want %s", took, 10*time.Second)
		}
		lines := logs.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "Part ns/p") || !strings.Contains(lines[0], "unseen-write") {
			t.Errorf("logged %q, want one line that names the part", lines)
		}
		w.put("widgets", "a", 3)
		synctest.Wait()
		if got := runs.take(); len(got) != 1 {
			t.Errorf("after the wait was over, a change made the handler run %d times at once, want once", len(got))
		}
		_ = ctrl
	})
}

// A problem of a key that has no object, and that is given up, ends: no later run and no deletion would end it.
func TestUnseenWriteOfKeyWithoutObjectEndsWhenGivenUp(t *testing.T) {
	for name, policy := range map[string]retry.Policy{"terminal": {}, "no retries left": {MaxRetries: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				keys := make(chan kube.Key)
				ctrl, err := controller.New(controller.Config[controller.NoObject]{
					Name: "keys", Reads: []informer.Any{w.parts(kube.Selection{})},
					Sources: []controller.Source{source.Channel("keys", keys)}, Logger: slog.New(slog.DiscardHandler),
					Retry: retry.Config{Every: policy},
					Reconciler: func(ctx context.Context, _ kube.Key) error {
						if len(w.Keys("parts")) == 0 {
							return w.create(ctx, "parts", "Part", "p")
						}
						if policy.MaxRetries < 0 {
							return errors.New("no luck")
						}
						return controller.Terminal(errors.New("no luck"))
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				w.HoldWatches("parts")
				start(t, ctrl)
				keys <- key("a")
				synctest.Wait()
				keys <- key("a")
				time.Sleep(time.Minute)
				if problems := ctrl.Problems(); len(ctrl.RecentRuns()) != 2 || len(problems) > 0 {
					t.Errorf("%d runs, want 2; problems: %v", len(ctrl.RecentRuns()), problems)
				}
			})
		})
	}
}

// TestContract07_RunWaitsForFailingInformer checks that a key waits longer while an informer reports that it is
// behind, because every run would read stale objects.
func TestContract07_RunWaitsForFailingInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(kube.Selection{})
		var runs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			return w.createPart(ctx)
		})
		c.Reads = []informer.Any{parts}
		w.put("widgets", "a", 1)
		w.HoldWatches("parts")
		w.run(c)
		synctest.Wait()
		runs.take()
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if strings.Contains(req.URL.Path, "parts") {
				return nil, errors.New("no route to host")
			}
			return do(), nil
		})
		w.Break("parts", false)
		w.put("widgets", "a", 2)
		time.Sleep(4 * time.Minute)
		if got := runs.take(); len(got) != 0 {
			t.Errorf("while the informer could not watch, handled: %q", got)
		}
		w.Hook(nil)
		w.ReleaseWatches("parts")
		time.Sleep(time.Minute)
		if got := runs.take(); len(got) != 1 {
			t.Errorf("when the informer could watch again, handled: %q", got)
		}
	})
}

// TestContract07_RunDoesNotWaitForUncachedWrites writes objects of a kind without an informer, writes objects
// outside an informer's selection, and deletes one.
func TestContract07_RunDoesNotWaitForUncachedWrites(t *testing.T) {
	for name, test := range map[string]struct {
		selection *kube.Selection
		write     func(w *world, ctx context.Context) error
		waits     bool
		outcome   controller.WriteOutcome
	}{
		"a kind without an informer": {nil, func(w *world, ctx context.Context) error { return w.create(ctx, "parts", "Part", "p") }, false, controller.WriteDone},
		"another namespace": {&kube.Selection{Namespaces: []string{"elsewhere"}}, func(w *world, ctx context.Context) error {
			return w.create(ctx, "parts", "Part", "p")
		}, false, controller.WriteDone},
		"other labels": {&kube.Selection{LabelSelector: "color=red"}, func(w *world, ctx context.Context) error {
			return w.create(ctx, "parts", "Part", "p", "color", "blue")
		}, false, controller.WriteDone},
		"the same labels": {&kube.Selection{LabelSelector: "color=red"}, func(w *world, ctx context.Context) error {
			return w.create(ctx, "parts", "Part", "p", "color", "red")
		}, true, controller.WriteDone},
		"a deletion": {&kube.Selection{}, func(w *world, ctx context.Context) error {
			return w.objects("parts").Delete(ctx, "old", metav1.DeleteOptions{})
		}, true, controller.WriteDone},
		"a dry run": {&kube.Selection{}, func(w *world, ctx context.Context) error {
			return w.objects("parts").Delete(ctx, "old", metav1.DeleteOptions{DryRun: []string{"All"}})
		}, false, controller.WriteDryRun},
		"a write that changes nothing": {&kube.Selection{}, func(w *world, ctx context.Context) error {
			return w.patch(ctx, "parts", "old", `{"spec":{"value":"1"}}`)
		}, false, controller.WriteNoChange},
		"a write that is refused": {&kube.Selection{}, func(w *world, ctx context.Context) error {
			_ = w.create(ctx, "parts", "Part", "old") // already exists
			return nil
		}, false, controller.WriteRejected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				var once sync.Once
				c := w.config(func(ctx context.Context, _ unstructuredObject) (err error) {
					runs.add("run")
					once.Do(func() { err = test.write(w, ctx) })
					return err
				})
				if test.selection != nil {
					c.Reads = []informer.Any{w.parts(*test.selection)}
				}
				w.put("widgets", "a", "1")
				w.put("parts", "old", "1")
				w.HoldWatches("parts")
				ctrl := w.run(c)
				synctest.Wait()
				if writes := ctrl.RecentRuns()[0].WriteRecords(); len(writes) != 1 || writes[0].Outcome != test.outcome {
					t.Errorf("the record has the writes %v, want one with the outcome %q", writes, test.outcome)
				}
				runs.take()
				w.put("widgets", "a", "2")
				synctest.Wait()
				if ran := len(runs.take()) == 1; ran == test.waits {
					t.Errorf("the key waits: %v, want %v", !ran, test.waits)
				}
				w.ReleaseWatches("parts")
				synctest.Wait()
				if ran := len(runs.take()) == 1; ran != test.waits {
					t.Errorf("the key runs when the watch goes on: %v, want %v", ran, test.waits)
				}
			})
		})
	}
}

// TestContract13_OwnWritesDoNotEnqueueKeys checks an informer that is slower than the response, and one that is
// faster.
func TestContract13_OwnWritesDoNotEnqueueKeys(t *testing.T) {
	for name, test := range map[string]struct {
		slow bool // the responses
		on   bool // Runs.HandleOwnWrites
		want int
	}{
		"the response comes first": {false, false, 1},
		"the event comes first":    {true, false, 1},
		"switched on":              {false, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(kube.Selection{})
				var runs journal
				c := w.config(func(ctx context.Context, widget unstructuredObject) error {
					runs.add("%s", causesOf(ctx))
					if widget.Object["status"] != nil {
						return nil
					}
					return errors.Join(
						w.create(ctx, "parts", "Part", "p", "widget", "a"),
						w.patch(ctx, "widgets", "a", `{"metadata":{"finalizers":["example.com/f"]}}`),
						w.jsonPatch(ctx, "widgets", "a", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/g"}]`),
						w.jsonPatch(ctx, "widgets", "a", `[{"op":"test","path":"/metadata/finalizers/0","value":"example.com/f"},{"op":"remove","path":"/metadata/finalizers/0"}]`),
						w.patch(ctx, "widgets", "a", `{"status":{"ready":true}}`, "status"),
						w.jsonPatch(ctx, "widgets", "a", `[{"op":"add","path":"/status/seen","value":1}]`, "status"))
				})
				c.Sources = []controller.Source{source.OwnerLabel(parts, "widget")}
				c.Runs.HandleOwnWrites = test.on
				if test.slow {
					w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
						resp := do()
						if req.Method != http.MethodGet {
							time.Sleep(time.Second)
						}
						return resp, nil
					})
				}
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				time.Sleep(time.Minute)
				if got := runs.take(); len(got) != test.want {
					t.Errorf("%d runs, want %d: %q\n%s", len(got), test.want, got, ctrl.Explain(key("a")))
				}
				w.put("widgets", "a", 2)
				w.put("parts", "p", 2)
				time.Sleep(time.Minute)
				if got := runs.take(); len(got) == 0 {
					t.Error("changes by another client did not make the handler run")
				}
			})
		})
	}
}

// TestContract13_ForeignChangeHiddenByOwnWriteRunsHandler checks a relist that shows the handler's own write and hides
// an earlier change by another client.
func TestContract13_ForeignChangeHiddenByOwnWriteRunsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		first := true
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			value, _, _ := unstructured.NestedString(widget.Object, "spec", "value")
			runs.add("%s", value)
			if !first {
				return nil
			}
			first = false
			w.HoldWatches("widgets")
			w.put("widgets", "a", "foreign")
			return w.patch(ctx, "widgets", "a", `{"status":{"ready":true}}`, "status")
		})
		w.put("widgets", "a", "1")
		w.run(c)
		synctest.Wait()
		w.Break("widgets", true)
		time.Sleep(time.Minute)
		if got := runs.take(); !slices.Contains(got, "foreign") {
			t.Errorf("the handler has seen %q, not the change by another client", got)
		}
	})
}

// TestContract13_NoWakeUpIsLost lets a handler write while other clients change the objects that it reads and writes.
// Responses get lost or are late, and watches lag, break and restart, all at random. In the end the handler must have
// seen the last state of each object. Every second run has informers of the same kinds in other forms, and each watch lags
// by itself.
func TestContract13_NoWakeUpIsLost(t *testing.T) {
	for seed := range testlength.Count(12, 150) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 4))
			var mu sync.Mutex // for random
			chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return random.IntN(n) == 0 }
			w := newWorld(t)
			parts := w.parts(kube.Selection{})
			seen := map[string]string{}
			c := w.config(func(ctx context.Context, widget unstructuredObject) error {
				name := widget.GetName()
				value := fmt.Sprint(widget.Object["spec"])
				part, found, err := parts.Get(key(name))
				if err != nil {
					return err
				}
				partValue := ""
				if found && part.Object["spec"] != nil { // another client has changed it
					partValue = fmt.Sprint(part.Object["spec"])
				}
				mu.Lock()
				seen[name] = value + partValue
				mu.Unlock()
				var errs []error
				if !found || chance(4) {
					errs = append(errs, w.create(ctx, "parts", "Part", name, "widget", name))
				}
				if chance(3) {
					errs = append(errs, w.patch(ctx, "parts", name, fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, time.Now().UnixNano())))
				}
				switch {
				case chance(3):
					errs = append(errs, w.patch(ctx, "widgets", name, fmt.Sprintf(`{"status":{"seen":%q}}`, value), "status"))
				case chance(2):
					errs = append(errs, w.jsonPatch(ctx, "widgets", name, fmt.Sprintf(`[{"op":"add","path":"/status","value":{"seen":%q}}]`, value), "status"))
				}
				if chance(3) {
					return errors.Join(errs...)
				}
				return nil
			})
			c.Sources = []controller.Source{source.OwnerLabel(parts, "widget")}
			if seed%2 == 1 {
				c.Reads = w.otherInformers()
			}
			lag := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(max(0, random.IntN(80)-40)) * time.Millisecond
			}
			w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
				resp := do()
				if req.Method == http.MethodGet {
					if seed%2 == 1 && req.URL.Query().Get("watch") != "" {
						resp.Body = lagging{resp.Body, lag}
					}
					return resp, nil
				}
				switch {
				case chance(8):
					return nil, errors.New("connection reset by peer")
				case chance(3):
					time.Sleep(30 * time.Millisecond)
				}
				return resp, nil
			})
			ctrl := w.run(c)
			names := []string{"a", "b", "c"}
			for step := range 60 {
				name := names[step%len(names)]
				resource := []string{"widgets", "parts"}[step/3%2]
				switch {
				case resource == "parts" && w.Object("parts", key(name)) != nil:
					w.put("parts", name, step)
				case resource == "widgets":
					w.put("widgets", name, step)
				}
				switch {
				case chance(10):
					w.HoldWatches(resource)
				case chance(6):
					w.ReleaseWatches(resource)
				case chance(12):
					w.Break(resource, chance(2))
				}
				mu.Lock()
				pause := time.Duration(random.IntN(40)) * time.Millisecond
				mu.Unlock()
				time.Sleep(pause)
			}
			w.Hook(nil)
			w.ReleaseWatches("widgets")
			w.ReleaseWatches("parts")
			time.Sleep(30 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			for _, name := range names {
				want := fmt.Sprint(w.Object("widgets", key(name)).Object["spec"])
				if part := w.Object("parts", key(name)); part != nil && part.Object["spec"] != nil {
					want += fmt.Sprint(part.Object["spec"])
				}
				if seen[name] != want {
					t.Errorf("seed %d: the handler of %s has seen %s last, want %s\n%s", seed, name, seen[name], want, ctrl.Explain(key(name)))
				}
			}
		})
	}
}

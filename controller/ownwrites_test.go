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
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// TestContract07_CacheOmitsDeletedChild checks that the next run does not see the child, although the
// informer shows its creation before its deletion.
func TestContract07_CacheOmitsDeletedChild(t *testing.T) {
	finalized := func(w *world, ctx context.Context) error {
		_, err := w.objects("parts").Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	}
	remove := func(w *world, ctx context.Context) error {
		return w.objects("parts").Delete(ctx, "p", metav1.DeleteOptions{})
	}
	for name, test := range map[string]struct {
		do     []func(w *world, ctx context.Context) error
		events int // number of events for the part
	}{
		"deleted": {[]func(*world, context.Context) error{remove}, 2},
		"deleted with a precondition": {[]func(*world, context.Context) error{func(w *world, ctx context.Context) error {
			part := w.Object("parts", key("p"))
			uid, version := part.GetUID(), part.GetResourceVersion()
			return w.objects("parts").Delete(ctx, "p", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		}}, 2},
		"its last finalizer is removed": {[]func(*world, context.Context) error{func(w *world, ctx context.Context) error {
			return w.patch(ctx, "parts", "p", `{"metadata":{"finalizers":["example.com/f"]}}`)
		}, remove, finalized}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(kube.Selection{})
				var runs journal
				first := true
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("the part is there: %v", cache.Of(parts).Has(key("p")))
					if !first {
						return nil
					}
					first = false
					err := w.create(ctx, "parts", "Part", "p")
					for _, do := range test.do {
						err = errors.Join(err, do(w, ctx))
					}
					return err
				})
				c.Reads = []informer.Any{parts}
				w.HoldWatches("parts")
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				synctest.Wait()
				w.put("widgets", "a", 2)
				time.Sleep(time.Second)
				for range test.events {
					if got := runs.take(); slices.Contains(got, "the part is there: true") || len(got) > 1 {
						t.Errorf("before the informer has shown all that the first run did, handled: %q\n%s", got, ctrl.Explain(key("a")))
					}
					w.ReleaseOne("parts")
					time.Sleep(time.Second)
				}
				if got := runs.take(); !slices.Equal(got, []string{"the part is there: false"}) {
					t.Errorf("when the informer has shown it, handled: %q", got)
				}
				if w.Object("parts", key("p")) != nil {
					t.Error("the part is there")
				}
			})
		})
	}
}

// TestContract07_ForbiddenNamespaceDoesNotExtendWait checks that only the watch that must show the write
// can extend the wait.
func TestContract07_ForbiddenNamespaceDoesNotExtendWait(t *testing.T) {
	for forbidden, want := range map[string]time.Duration{"other": 10 * time.Second, "ns": 5 * time.Minute} {
		t.Run(forbidden, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(kube.Selection{Namespaces: []string{"ns", "other"}})
				var runs journal
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("run")
					return w.createPart(ctx)
				})
				c.Reads = []informer.Any{parts}
				w.HoldWatches("parts")
				ctrl := w.run(c)
				synctest.Wait()
				refuse := true
				w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
					if refuse && req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/namespaces/"+forbidden+"/parts") {
						return answerForbidden(), nil
					}
					return do(), nil
				})
				w.Break("parts", false)
				time.Sleep(time.Minute)
				w.put("widgets", "a", 1)
				synctest.Wait()
				began := time.Now()
				w.put("widgets", "a", 2)
				if runs.take(); parts.Ready() == nil {
					t.Fatal("the informer is ready, although a namespace is forbidden")
				}
				for len(runs.take()) == 0 && time.Since(began) < 10*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began).Round(time.Second); took != want {
					t.Errorf("the key waited for %s, want %s\n%s", took, want, ctrl.Explain(key("a")))
				}
			})
		})
	}
}

func answerForbidden() *http.Response {
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"parts is forbidden","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// TestInformerStartedByHandlerOutlivesRun checks that a handler can start an informer with its context. The
// informer's requests are not part of the run's record, and the informer does not keep the run in memory.
func TestInformerStartedByHandlerOutlivesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(kube.Selection{})
		var leave func()
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			leave = parts.Join(ctx)
			return parts.WaitSynced(ctx)
		})
		w.put("widgets", "a", 1)
		w.put("parts", "p", 1)
		ctrl := w.run(c)
		time.Sleep(time.Second)
		w.Break("parts", true)
		time.Sleep(time.Minute)
		if run := ctrl.RecentRuns()[0]; run.Calls != 0 || run.Outcome != controller.OutcomeSuccess {
			t.Errorf("%s, %d calls: those of an informer that outlives the run were counted", run, run.Calls)
		}
		if parts.Len() != 1 {
			t.Errorf("the informer shows %d parts, want 1", parts.Len())
		}
		leave()
	})
}

// TestUnobservedReturnsContextOfWorker checks that Unobserved returns the context below the first observer, without the
// values that were added above it.
func TestUnobservedReturnsContextOfWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		type name struct{}
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			ctx = context.WithValue(kube.ObserveCalls(ctx, nil), name{}, 1)
			outside := observers.Outside(ctx)
			if _, inside := controller.RunFrom(outside); inside || outside.Value(name{}) != nil {
				return errors.New("it has values of the run")
			}
			return nil
		})
		c.Logger = slog.New(slog.DiscardHandler)
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		synctest.Wait()
		if run := ctrl.RecentRuns()[0]; run.Outcome != controller.OutcomeSuccess {
			t.Error(run)
		}
	})
}

// respondWithMetadata replaces an API server's response with the one that a metadata client requests: an object without
// its content.
func respondWithMetadata(t *testing.T, resp *http.Response) *http.Response {
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

// TestContract13_PartialResponseIsNotAnOwnWrite checks a metadata client that writes twice. The responses do not
// contain the field that another client changed between the writes. The second write changes nothing, so the version in
// its response is that of the other client's write.
func TestContract13_PartialResponseIsNotAnOwnWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		first := true
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				return respondWithMetadata(t, do()), nil
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
			t.Errorf("the handler has seen %q, not the change by another client\n%s", got, ctrl.Explain(key("a")))
		}
	})
}

// TestNegativeConsistencyTimeoutHandlesEveryOwnWrite checks that every own write causes a run, even if the
// informer is faster than the response.
func TestNegativeConsistencyTimeoutHandlesEveryOwnWrite(t *testing.T) {
	for name, slow := range map[string]time.Duration{"the response comes first": 0, "the event comes first": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(kube.Selection{})
				var runs journal
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("%s", causesOf(ctx))
					return w.createPart(ctx, "widget", "a")
				})
				c.Sources = []controller.Source{source.OwnerLabel(parts, "widget")}
				c.Runs.ConsistencyTimeout = -1
				w.after(http.MethodPost, func() { time.Sleep(slow) })
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

// TestWriteThatOutlivesItsRunIsNotAwaited checks that no run waits for a write if its run ends between the response
// and the registration of the write. No later run would start or end that wait.
func TestWriteThatOutlivesItsRunIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gated := &gatedInformer{Informer: w.parts(kube.Selection{})}
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
		w.after(http.MethodPatch, func() { gated.set(gate) })
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(10 * time.Second)
		gated.set(nil)
		close(gate)
		outliving.Wait()
		if unseen := ctrl.Explained(key("a")).Unseen; len(unseen) != 0 {
			t.Errorf("when all is done, the key waits for %q", unseen)
		}
		w.put("widgets", "a", 2)
		time.Sleep(time.Minute)
		if got := logs.take(); len(got) != 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// at returns a world whose API server has another URL.
func (w *world) at(host string) *world {
	w.t.Helper()
	config := w.Config("operator")
	config.Host = host
	cluster, client := apitest.Connect(config)
	return &world{Server: w.Server, t: w.t, cluster: cluster, client: client}
}

// A handler writes an object to another cluster, of the kind that the controller watches in its own.
func TestContract07_KeysDoNotWaitForWritesToAnotherCluster(t *testing.T) {
	for name, watchesOther := range map[string]bool{"that nothing watches": false, "that a source watches": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, other := newWorld(t), newWorld(t).at("http://other.invalid")
				var runs journal
				c := w.config(func(ctx context.Context, widget unstructuredObject) error {
					value, _, _ := unstructured.NestedInt64(widget.Object, "spec", "value")
					runs.add("%s: %v", causesOf(ctx), value)
					if value > 1 {
						return other.patch(ctx, "widgets", "a", fmt.Sprintf(`{"spec":{"value":%d}}`, value))
					}
					if err := other.create(ctx, "widgets", "Widget", "a"); err != nil {
						return err
					}
					return controller.WaitForOwnWrites(ctx)
				})
				if watchesOther {
					widgets, err := informer.New(informer.Config[unstructuredObject]{
						Name: "others", Logger: c.Logger,
						Retriever: informer.RetrieveSelected[unstructuredObject](other.cluster, kube.Selection{Kind: kindOf("Widget")}),
					})
					if err != nil {
						t.Fatal(err)
					}
					c.Sources = []controller.Source{source.Mapped(widgets, func(o unstructuredObject) []kube.Key { return []kube.Key{kube.KeyOf(o)} })}
				}
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				synctest.Wait()
				w.put("widgets", "a", 2)
				synctest.Wait()
				w.put("widgets", "a", 3)
				synctest.Wait()
				time.Sleep(time.Minute)
				want := []string{"listed: 1", "updated (spec) by somebody: 2", "updated (spec) by somebody: 3"}
				if got := runs.take(); !slices.Equal(got, want) {
					t.Errorf("runs: %q, want %q", got, want)
				}
				for _, run := range ctrl.RecentRuns() {
					if run.Held > 0 || run.Outcome != controller.OutcomeSuccess {
						t.Errorf("run %d: %s, held for %s: %s", run.ID, run.Outcome, run.Held, run.Error)
					}
				}
				expectNoProblems(t, "at the end", ctrl)
			})
		})
	}
}

// An informer of another cluster that cannot be reached must not delay the keys of this one.
func TestContract07_KeysDoNotWaitForUnreachableCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := newWorld(t), newWorld(t).at("http://other.invalid")
		other.Hook(func(*http.Request, func() *http.Response) (*http.Response, error) {
			return nil, errors.New("no route to host")
		})
		parts := other.parts(kube.Selection{})
		var runs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("run")
			if w.Object("parts", key("p")) != nil {
				return nil
			}
			return w.create(ctx, "parts", "Part", "p")
		})
		w.expectRunForEachChange(c, parts, &runs)
	})
}

// expectRunForEachChange runs a controller, adds a source with parts, and changes a Widget twice.
func (w *world) expectRunForEachChange(c controller.Config[unstructuredObject], parts *informer.Informer[unstructuredObject], runs *journal) {
	w.t.Helper()
	ctrl := w.run(c)
	synctest.Wait()
	addSource(w.t, ctrl, source.Mapped(parts, func(unstructuredObject) []kube.Key { return nil }))
	for n := range 2 {
		w.put("widgets", "a", n+1)
		synctest.Wait()
	}
	if got := runs.take(); len(got) != 2 {
		w.t.Errorf("%d runs, want 2\n%s", len(got), ctrl.Explain(key("a")))
	}
}

// addSource adds a source whose informer may never list, in a goroutine that ends with the test.
func addSource(t *testing.T, ctrl *controller.Controller[unstructuredObject], s controller.Source) {
	t.Helper()
	added := make(chan struct{})
	go func() { // waited for by the cleanup
		defer close(added)
		if _, err := ctrl.AddSource(s); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { <-added })
	synctest.Wait()
}

// An informer that was added at run time and may not list shows no write, so that no key waits for it.
func TestContract07_KeysDoNotWaitForInformerThatHasNeverListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "parts") {
				return answerForbidden(), nil
			}
			return do(), nil
		})
		parts := w.parts(kube.Selection{})
		var runs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.add("run")
			if w.Object("parts", key("p")) != nil {
				return nil
			}
			if err := w.create(ctx, "parts", "Part", "p"); err != nil {
				return err
			}
			return controller.WaitForOwnWrites(ctx)
		})
		w.expectRunForEachChange(c, parts, &runs)
	})
}

package controller_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/observed"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestContract07_AChildThatWasCreatedAndDeletedIsNotSeen checks that the next run does not see the child, although the
// informer shows its creation before its deletion.
func TestContract07_AChildThatWasCreatedAndDeletedIsNotSeen(t *testing.T) {
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
				parts := w.parts(informer.Selection{})
				var runs journal
				first := true
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("the part is there: %v", parts.Has(key("p")))
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

// TestContract07_TheWaitIsBoundedWhileAnotherNamespaceIsForbidden checks that only the watch that must show the write
// can extend the wait.
func TestContract07_TheWaitIsBoundedWhileAnotherNamespaceIsForbidden(t *testing.T) {
	for forbidden, want := range map[string]time.Duration{"other": 10 * time.Second, "ns": 5 * time.Minute} {
		t.Run(forbidden, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(informer.Selection{Namespaces: []string{"ns", "other"}})
				var runs journal
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.add("run")
					if len(w.Keys("parts")) > 0 {
						return nil
					}
					return w.create(ctx, "parts", "Part", "p")
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
				for len(runs.take()) == 0 && time.Since(began) < 5*time.Minute {
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

// TestASessionThatAHandlerStartsIsNotPartOfItsRun checks that a handler can start an informer with its context. The
// informer's requests are not part of the run's record, and the informer does not keep the run in memory.
func TestASessionThatAHandlerStartsIsNotPartOfItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(informer.Selection{})
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

// TestUnobservedIsTheWorkersContext checks that Unobserved returns the context below the first observer, without the
// values that were added above it.
func TestUnobservedIsTheWorkersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		type name struct{}
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			ctx = context.WithValue(kube.ObserveCalls(ctx, nil), name{}, 1)
			outside := observed.Outside(ctx)
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

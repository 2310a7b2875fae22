package controller_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestContract25_DeletedIsNotCalledForObjectsThatExist checks everything that removes an object from the cache without
// a deletion, and the deletions beside it.
func TestContract25_DeletedIsNotCalledForObjectsThatExist(t *testing.T) {
	relabel := func(w *world, team string) {
		w.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool {
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"team": team}
			return true
		})
	}
	blue := kube.Selection{LabelSelector: "team=blue"}
	for name, test := range map[string]struct {
		selection kube.Selection
		change    func(w *world, widgets *informer.Informer[unstructuredObject])
		calls     []string
	}{
		"label edit": {blue, func(w *world, _ *informer.Informer[unstructuredObject]) { relabel(w, "red") }, nil},
		"label edit during an outage": {blue, func(w *world, _ *informer.Informer[unstructuredObject]) {
			w.Break("widgets", true)
			relabel(w, "red")
		}, nil},
		"deletion":        {blue, func(w *world, _ *informer.Informer[unstructuredObject]) { w.remove("widgets", "a") }, []string{"deleted"}},
		"deletion of all": {kube.Selection{}, func(w *world, _ *informer.Informer[unstructuredObject]) { w.remove("widgets", "a") }, []string{"deleted"}},
		"label edit, then deletion": {blue, func(w *world, _ *informer.Informer[unstructuredObject]) {
			w.HoldWatches("widgets")
			relabel(w, "red")
			w.remove("widgets", "a")
			w.ReleaseWatches("widgets")
		}, []string{"deleted"}},
		"created again outside of the selection": {blue, func(w *world, _ *informer.Informer[unstructuredObject]) {
			w.remove("widgets", "a")
			relabel(w, "red")
		}, []string{"deleted"}},
		"dropped namespace": {kube.Selection{Namespaces: []string{"ns", "other"}}, func(w *world, widgets *informer.Informer[unstructuredObject]) {
			other := informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Widget"), Namespaces: []string{"other"}})
			if err := widgets.SetRetriever(w.t.Context(), other); err != nil {
				w.t.Error(err)
			}
		}, nil},
		"narrower selection": {kube.Selection{}, func(w *world, widgets *informer.Informer[unstructuredObject]) {
			red := informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Widget"), LabelSelector: "team=red"})
			if err := widgets.SetRetriever(w.t.Context(), red); err != nil {
				w.t.Error(err)
			}
		}, nil},
		"unknown for a while": {blue, func(w *world, _ *informer.Informer[unstructuredObject]) {
			relabel(w, "red")
			w.Fail("list", apierrors.NewServiceUnavailable("starting"))
			time.Sleep(time.Minute)
			w.Fail("list", nil)
		}, nil},
		"kind not found for a while": {kube.Selection{}, func(w *world, _ *informer.Informer[unstructuredObject]) {
			var missing atomic.Bool
			missing.Store(true)
			w.Hook(func(_ *http.Request, do func() *http.Response) (*http.Response, error) {
				if !missing.Load() {
					return do(), nil
				}
				answer := answerForbidden()
				answer.StatusCode, answer.Body = http.StatusNotFound, io.NopCloser(strings.NewReader("404 page not found"))
				answer.Header.Set("Content-Type", "text/plain")
				return answer, nil
			})
			w.Break("widgets", true)
			time.Sleep(time.Hour)
			missing.Store(false)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				relabel(w, "blue")
				test.selection.Kind = kindOf("Widget")
				widgets, err := informer.New(informer.Config[unstructuredObject]{
					Retriever: informer.RetrieveSelected[unstructuredObject](w.cluster, test.selection), Optional: strings.HasPrefix(name, "kind"),
				})
				if err != nil {
					t.Fatal(err)
				}
				var seen journal
				c := w.config(func(context.Context, unstructuredObject) error { return nil })
				c.Retriever, c.Informer = nil, widgets
				c.Deleted = func(_ context.Context, _ unstructuredObject, _ bool) error {
					seen.add("deleted")
					return nil
				}
				ctrl := w.run(c)
				time.Sleep(time.Second)
				test.change(w, widgets)
				time.Sleep(10 * time.Minute)
				if got := seen.take(); !slices.Equal(got, test.calls) {
					t.Errorf("Deleted was called %q, want %q", got, test.calls)
				}
				if s := ctrl.Stats(); s.Failing != 0 {
					t.Errorf("%d keys fail", s.Failing)
				}
			})
		})
	}
}

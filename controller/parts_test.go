package controller_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A forbidden namespace of several holds back only its own objects: from the start, after SetRetriever, and when the
// permission is removed. It stays in Problems, also with Optional, and its objects are handled when they may be read.
func TestContract09_ForbiddenNamespaceDoesNotHoldBackOthers(t *testing.T) {
	for _, optional := range []bool{false, true} {
		for _, when := range []string{"at start", "at run time", "revoked"} {
			t.Run(fmt.Sprintf("%s, optional %t", when, optional), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testForbiddenNamespace(t, optional, when) })
			})
		}
	}
}

func testForbiddenNamespace(t *testing.T, optional bool, when string) {
	t.Helper()
	w, other := newWorld(t), kube.Key{Namespace: "other", Name: "b"}
	var refuse atomic.Bool
	refuse.Store(when != "revoked")
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if refuse.Load() && req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/namespaces/other/widgets") {
			return answerForbidden(), nil
		}
		return do(), nil
	})
	w.in(other.Namespace, other.Name, 1)
	w.put("widgets", "a", 1)
	in := func(namespaces ...string) informer.Retriever[unstructuredObject] {
		return informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Widget"), Namespaces: namespaces})
	}
	var runs journal
	c := w.config(func(ctx context.Context, widget unstructuredObject) error {
		runs.add("%s", kube.KeyOf(widget))
		if widget.GetName() != "a" {
			return nil
		}
		patch := fmt.Sprintf(`{"status":{"seen":%q}}`, widget.GetResourceVersion())
		_, err := w.client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).
			Namespace("other").Patch(ctx, "b", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	})
	c.Optional = optional
	if c.Retriever = in("ns", "other"); when == "at run time" {
		c.Retriever = in("ns")
	}
	c.Deleted = func(_ context.Context, last unstructuredObject, _ bool) error {
		runs.add("deleted %s", kube.KeyOf(last))
		return nil
	}
	ctrl := w.run(c)
	inf := ctrl.Informer()
	time.Sleep(time.Minute)
	switch when {
	case "at run time":
		set(t, inf, in("ns", "other"))
	case "revoked":
		refuse.Store(true)
		w.Break("widgets", false)
	}
	time.Sleep(time.Minute)
	want := []string{"ns/a"}
	if when == "revoked" {
		want = append(want, "other/b")
	}
	if got := runs.take(); !sameKeys(got, want) {
		t.Errorf("while the namespace is forbidden, handled %q, want %q", got, want)
	}
	problems := ctrl.Problems()
	if len(problems) != 1 || problems[0].Type != controller.ProblemInformer || !strings.Contains(problems[0].Message, "namespace other") {
		t.Errorf("problems: %v", problems)
	}
	if err := ctrl.Ready(); (err == nil) != optional {
		t.Errorf("Ready: %v", err)
	}
	if h := inf.Health(); !apierrors.IsForbidden(h.Err) || h.Degraded != optional {
		t.Errorf("Health: %+v", h)
	}
	if _, found, err := inf.Get(other); found != (when == "revoked") || (err == nil) != (found || optional) {
		t.Errorf("Get of an object in the forbidden namespace: %t, %v", found, err)
	}
	if _, found, err := inf.Get(key("missing")); found || err != nil {
		t.Errorf("Get of a missing object in the other namespace: %t, %v", found, err)
	}

	// The key's last run has written an object that the forbidden part does not show.
	w.put("widgets", "a", 2)
	time.Sleep(5 * time.Second)
	w.put("widgets", "a", 3)
	time.Sleep(20 * time.Second)
	if got := runs.take(); when != "revoked" && len(got) != 2 {
		t.Errorf("handled %q after two changes\n%s", got, ctrl.Explain(key("a")))
	}

	refuse.Store(false)
	time.Sleep(30 * time.Second)
	if got := runs.take(); when != "revoked" && !sameKeys(got, []string{"other/b"}) {
		t.Errorf("when the permission is granted, handled %q", got)
	}
	w.in(other.Namespace, other.Name, 2)
	time.Sleep(30 * time.Second)
	if got := runs.take(); !sameKeys(got, []string{"other/b"}) {
		t.Errorf("after a change in the other namespace, handled %q", got)
	}
	if problems, err := ctrl.Problems(), ctrl.Ready(); len(problems) > 0 || err != nil || !inf.Health().Synced {
		t.Errorf("afterwards: %v, %v", problems, err)
	}
}

// A controller whose own kind, or whose children's, cannot be read handles what it can with Optional.
func TestOptionalKindsDoNotHoldBackController(t *testing.T) {
	backendDown := func() *http.Response {
		response := answerForbidden()
		response.StatusCode = http.StatusServiceUnavailable
		response.Header.Set("Content-Type", "text/plain")
		response.Body = io.NopCloser(strings.NewReader("service unavailable"))
		return response
	}
	for name, answer := range map[string]func() *http.Response{"forbidden": answerForbidden, "backend down": backendDown} {
		for _, refused := range []string{"widgets", "parts"} {
			t.Run(name+" "+refused, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					var refuse atomic.Bool
					refuse.Store(true)
					w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
						if refuse.Load() && strings.Contains(req.URL.Path, refused) {
							return answer(), nil
						}
						return do(), nil
					})
					var runs journal
					c := w.config(func(_ context.Context, widget unstructuredObject) error {
						runs.add("%s", kube.KeyOf(widget))
						return nil
					})
					c.Optional = true
					parts, err := informer.New(informer.Config[unstructuredObject]{
						Retriever: informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Part")}),
						Optional:  true, Logger: c.Logger,
					})
					if err != nil {
						t.Fatal(err)
					}
					c.Reads = []informer.Any{parts}
					w.put("widgets", "a", 1)
					ctrl := w.run(c)
					time.Sleep(time.Minute)
					if got := runs.take(); len(got) == 0 != (refused == "widgets") {
						t.Errorf("handled %q", got)
					}
					if err := ctrl.Ready(); err != nil || len(ctrl.Problems()) != 1 {
						t.Errorf("Ready: %v, problems: %v", err, ctrl.Problems())
					}
					refuse.Store(false)
					time.Sleep(30 * time.Second)
					if got := runs.take(); len(got) == 0 != (refused == "parts") {
						t.Errorf("when the kind can be read, handled %q", got)
					}
					expectNoProblems(t, "afterwards", ctrl)
				})
			})
		}
	}
	c := newWorld(t).config(func(context.Context, unstructuredObject) error { return nil })
	shared, err := informer.New(informer.Config[unstructuredObject]{Retriever: c.Retriever})
	if err != nil {
		t.Fatal(err)
	}
	c.Retriever, c.Informer, c.Optional = nil, shared, true
	if _, err := controller.New(c); err == nil || !strings.Contains(err.Error(), "Optional and Informer are set") {
		t.Errorf("Optional with an informer of the program: %v", err)
	}
}

// set calls SetRetriever, which must return within a minute without an error.
func set(t *testing.T, inf *informer.Informer[unstructuredObject], r informer.Retriever[unstructuredObject]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := inf.SetRetriever(ctx, r); err != nil {
		t.Error(err)
	}
}

// sameKeys reports whether got has the keys of want, each at least once, and no other ones.
func sameKeys(got, want []string) bool {
	slices.Sort(got)
	return slices.Equal(slices.Compact(got), want)
}

package apply

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/status"
)

// Repeated applies make no request, for any number of field owners: tools that apply on behalf of their users have
// many.
func TestRepeatedAppliesByManyFieldOwnersMakeNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	apply := func(ctx context.Context, n int, want client.ObjectOutcome) *corev1.ConfigMap {
		t.Helper()
		config := w.configMap(fmt.Sprint("of-", n), map[string]string{"mode": "fast"})
		return applied(ctx, t, c, want, config, client.FieldOwner(fmt.Sprint("owner-", n))).Object
	}
	const owners = 40
	for n := range owners {
		shows(apply(t.Context(), n, client.Created))
	}
	ctx, requests := watched(t)
	for n := range owners {
		apply(ctx, n, client.Unchanged)
	}
	requests.want(t)
}

// converges checks the requests of the second of three equal runs, and that the third one makes none.
func converges(t *testing.T, run func(ctx context.Context), second ...string) {
	t.Helper()
	run(t.Context())
	ctx, requests := watched(t)
	run(ctx)
	requests.want(t, second...)
	run(ctx)
	requests.want(t)
}

// Two field owners that force the same fields with the same values converge: after a forced apply, the other owner
// makes one request and finds no difference.
func TestForcedAppliesByTwoFieldOwnersConverge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	run := func(ctx context.Context) {
		t.Helper()
		for _, owner := range []string{"one", "two"} {
			config := w.configMap("shared", map[string]string{"mode": "fast"})
			result := must(client.Apply(ctx, c, config, client.FieldOwner(owner), client.Force()))(t)
			shows(result.Object)
		}
	}
	converges(t, run, "patch") // one owner makes a request again
}

// A handler that applies an object, and also labels, annotates and otherwise writes it, converges.
func TestApplyWithOtherWritesConverges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	run := func(ctx context.Context) {
		t.Helper()
		obj := must(client.Apply(ctx, c, w.configMap("web", map[string]string{"mode": "fast"}), client.Force()))(t).Object
		shows(obj)
		for _, edit := range []func(labels, annotations map[string]string){
			func(labels, _ map[string]string) { labels["example.com/seen"] = "yes" },
			func(_, annotations map[string]string) { annotations["example.com/seen"] = "yes" },
		} {
			var err error
			if obj, _, err = client.EditMetadata(ctx, c, obj, edit); err != nil {
				t.Fatal(err)
			}
			shows(obj)
		}
		written := must(compat.CreateOrUpdate(ctx, c, obj, set("colour", "blue")))(t)
		shows(written.Object)
	}
	converges(t, run, "patch") // the apply checks the other writes
}

// A handler that applies an object and a part of its status, and commits another part of the status, converges too. If
// each run writes another status, such as the time of the run, each run also makes one unnecessary patch.
func TestApplyWithStatusWritesConverges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Resting", true)
	c, shows := withInformer[*unstructured.Unstructured](t, w, kind)
	run := func(ctx context.Context, looked string) {
		t.Helper()
		obj := must(client.Apply(ctx, c, custom(w, kind, "r", map[string]any{"size": 3}), client.Force()))(t).Object
		shows(obj)
		phase := custom(w, kind, "r", nil)
		phase.Object["status"] = map[string]any{"phase": "Up"}
		obj = must(client.Apply(ctx, c, phase, client.Force(), client.FieldOwner("phases"), client.Subresource("status")))(t).Object
		shows(obj)
		after := obj.DeepCopy()
		if err := unstructured.SetNestedField(after.Object, looked, "status", "looked"); err != nil {
			t.Fatal(err)
		}
		if must(status.Commit(ctx, c, obj, after))(t) {
			shows(must(client.Get[*unstructured.Unstructured](ctx, c, kube.KeyOf(obj), client.OfKind(kind), client.FromAPI()))(t))
		}
	}
	run(t.Context(), "1")
	ctx, requests := watched(t)
	run(ctx, "1")
	requests.want(t, "patch", "patch/status")
	run(ctx, "1")
	requests.want(t)
	for _, looked := range []string{"2", "3"} {
		run(ctx, looked)
		run(ctx, looked)
		requests.want(t, "patch/status", "get", "patch", "patch/status")
	}
	run(ctx, "3")
	requests.want(t)
}

// DeleteAllOf in one namespace does not invalidate the state of objects in other namespaces: a periodic cleanup must
// not make all handlers of the program apply all their children again.
func TestDeleteAllOfKeepsStateOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere := clustertest.Namespace(t, w.c)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	config := w.configMap("web", map[string]string{"mode": "fast"})
	shows(applied(t.Context(), t, c, client.Created, config).Object)
	for what, deleteAll := range map[string]func() error{
		"another kind": func() error {
			return client.DeleteAllOf[*corev1.Secret](t.Context(), c, kube.Selection{Namespaces: []string{w.namespace}, FieldSelector: "metadata.name!="})
		},
		"another namespace": func() error {
			return client.DeleteAllOf[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{elsewhere}, FieldSelector: "metadata.name!="})
		},
	} {
		if err := deleteAll(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	ctx, requests := watched(t)
	applied(ctx, t, c, client.Unchanged, config)
	requests.want(t)
}

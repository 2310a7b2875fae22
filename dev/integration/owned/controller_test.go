package owned

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// An informer that selects the set's label covers its children: an idle set makes no request.
func TestIdleSetWithLabelInformersMakesNoRequest(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	configs := clustertest.Informer[*corev1.ConfigMap](t, e.cluster, kube.Selection{LabelSelector: owned.LabelSet + "=webapp"})
	cached := clustertest.Client(t, e.cluster, configs)
	set := e.set(func(c *owned.Config) {
		c.Client, c.Kinds = cached, []schema.GroupVersionKind{configMapKind}
		c.Namespaces = []string{metav1.NamespaceAll}
	})
	seen := newCalls()
	ctx := kube.ObserveCalls(t.Context(), seen)
	clustertest.Eventually(t, func() string {
		must(set.Apply(ctx, app, owned.Of(e.configMap("a", "colour", "blue"))...))(t)
		if requests := seen.Take(); len(requests) != 0 {
			return "there are still requests: " + requests[0]
		}
		return ""
	})
}

// If informers cover the kinds, an idle set makes no request, even if a foreign object has the name of a child.
func TestIdleSetMakesNoRequest(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	configs := clustertest.Informer[*corev1.ConfigMap](t, e.cluster, kube.Selection{})
	services := clustertest.Informer[*corev1.Service](t, e.cluster, kube.Selection{Namespaces: []string{e.namespace}})
	cached := clustertest.Client(t, e.cluster, configs, services)
	set := e.set(func(c *owned.Config) {
		c.Client, c.Kinds = cached, []schema.GroupVersionKind{configMapKind, serviceKind}
	})
	must(client.Create(t.Context(), e.c, e.configMap("foreign")))(t)
	children := append(
		owned.Of(e.configMap("a", "colour", "blue"), e.loadBalancer("web"), e.configMap("foreign")),
		owned.Child{Object: e.configMap("once"), CreateOnly: true})
	seen := newCalls()
	ctx := kube.ObserveCalls(t.Context(), seen)
	clustertest.Eventually(t, func() string { // until the informers show all writes
		_, err := set.Apply(ctx, app, children...)
		if err == nil {
			t.Fatal("nothing is said of the foreign object")
		}
		if requests := seen.Take(); len(requests) != 0 {
			return "there are still requests: " + requests[0]
		}
		return ""
	})
	report, _ := set.Apply(ctx, app, children...)
	e.want(report.Results, "ConfigMap a: unchanged", "Service web: unchanged", "ConfigMap foreign: foreign", "ConfigMap once: unchanged")
	plan, _ := set.Plan(ctx, app, children...)
	e.want(plan.Results, outcomes(report.Results)...)
	if requests := seen.Take(); len(requests) != 0 {
		t.Errorf("at rest: %q", requests)
	}
}

// A controller with the sources of package watched applies all waves, reverts other clients' deletions and changes,
// also in other namespaces, completes recreated children, and deletes all children before its finalizer is removed.
func TestSetInController(t *testing.T) {
	e := newEnv(t)
	other := clustertest.Namespace(t, e.c)
	apps := e.apps()
	kinds := must(watched.New(watched.Config{
		Client: client.Config{Cluster: e.cluster, FieldOwner: "webapp-operator"},
		Set:    owned.Config{Name: "webapp", Namespaces: []string{other}},
		Kinds:  []watched.Kind{watched.Of[*corev1.ConfigMap](), watched.Of[*corev1.Service]()},
	}))(t)
	set, cached := kinds.Set, kinds.Client
	const finalizer = "owned.example.com/children"
	var generation atomic.Int64
	generation.Store(1)
	frozenConfig := func() *corev1.ConfigMap {
		config := e.configMap("frozen", "colour", map[int64]string{1: "blue", 2: "red"}[generation.Load()])
		config.Immutable = new(true)
		return config
	}
	handle := func(ctx context.Context, app *unstructured.Unstructured) error {
		if app.GetDeletionTimestamp() != nil {
			report, err := set.Delete(ctx, app)
			if err != nil || report.Remaining() != "" || len(app.GetFinalizers()) == 0 {
				return err
			}
			after := app.DeepCopy()
			after.SetFinalizers(nil)
			_, err = client.Patch(ctx, cached, app, client.MergeFrom(app, after))
			return err
		}
		generation.Store(app.GetGeneration())
		_, err := set.Apply(ctx, app, slices.Concat(
			owned.Of(e.loadBalancer("web")),
			[]owned.Child{{Object: frozenConfig(), Wave: 1, Recreate: true}},
			owned.Wave(1, configMapIn(other, "far", "colour", "blue")))...)
		return err
	}
	clustertest.Run(t, controller.Config[*unstructured.Unstructured]{
		Name: "webapp", Informer: apps, Handler: handle,
		Sources: kinds.Sources,
	})
	app := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
	app.SetGroupVersionKind(appKind)
	app.SetNamespace(e.namespace)
	app.SetName("web")
	app.SetFinalizers([]string{finalizer})
	app = must(client.Create(t.Context(), e.c, app))(t)

	clustertest.Eventually(t, func() string {
		if _, err := client.Get[*corev1.Service](t.Context(), e.c, e.key("web")); err != nil {
			return err.Error()
		}
		return ""
	})
	if e.get(e.key("frozen")) != nil {
		t.Error("the second wave came before the first was ready")
	}
	e.giveAddress("web")
	far := kube.Key{Namespace: other, Name: "far"}
	e.eventually("the second wave", func() bool { return e.get(e.key("frozen")) != nil && e.get(far) != nil })

	before := e.get(far)
	if err := client.Delete(t.Context(), e.c, before); err != nil {
		t.Fatal(err)
	}
	e.eventually("the child that was deleted", func() bool { now := e.get(far); return now != nil && now.UID != before.UID })
	must(client.Patch(t.Context(), e.c, before, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"colour":"red"}}`))))(t)
	e.eventually("the child that was changed", func() bool { return e.get(far).Data["colour"] == "blue" })

	must(client.Patch(t.Context(), e.c, app, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"size":2}}`))))(t)
	e.eventually("the child that is created anew", func() bool {
		now := e.get(e.key("frozen"))
		return now != nil && now.Data["colour"] == "red"
	})

	if err := client.Delete(t.Context(), e.c, &metav1.PartialObjectMetadata{TypeMeta: typeMeta(appKind), ObjectMeta: metav1.ObjectMeta{
		Namespace: e.namespace, Name: "web",
	}}); err != nil {
		t.Fatal(err)
	}
	e.eventually("the end of the owner", func() bool {
		return !must(client.Exists[*unstructured.Unstructured](t.Context(), e.c, e.key("web"), client.OfKind(appKind)))(t)
	})
	if e.get(far) != nil || e.get(e.key("frozen")) != nil {
		t.Error("children were left behind")
	}
}

func (e env) eventually(what string, done func() bool) {
	e.Helper()
	clustertest.Eventually(e, func() string {
		if !done() {
			return what + " has not come"
		}
		return ""
	})
}

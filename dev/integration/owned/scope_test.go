package owned

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// Children that cannot have an owner reference are found by their labels, enqueue their owner, are pruned, and are
// deleted by Delete.
func TestNamespacedAndClusterScopedChildren(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	other := clustertest.Namespace(t, e.c)
	set := e.set(func(c *owned.Config) { c.Namespaces = []string{other} })
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-web"}}
	children := owned.Of(e.configMap("near"), configMapIn(other, "far"), configMapIn(other, "old"), role)
	report := e.apply(set, app, children...)
	e.want(report.Results, "ConfigMap near: created", "ConfigMap far: created", "ConfigMap old: created", "ClusterRole "+role.Name+": created")
	far := e.get(kube.Key{Namespace: other, Name: "far"})
	if keys := owned.OwnerKeys[*corev1.ConfigMap]("webapp")(far); !slices.Equal(keys, []kube.Key{e.key("web")}) || len(far.OwnerReferences) != 0 {
		t.Errorf("owners %v; owner references %v", keys, far.OwnerReferences)
	}
	if keys := owned.OwnerKeys[*corev1.ConfigMap]("another")(far); keys != nil {
		t.Errorf("another set has it: %v", keys)
	}

	// A user's copy with the labels and annotations of a child is not a child.
	duplicate := configMapIn(other, "copy")
	duplicate.Labels, duplicate.Annotations = far.Labels, far.Annotations
	must(client.Create(t.Context(), e.c, duplicate))(t)
	report = e.apply(set, app, owned.Of(e.configMap("near"), configMapIn(other, "far"), role)...)
	e.want(report.Results, "ConfigMap near: unchanged", "ConfigMap far: unchanged", "ClusterRole "+role.Name+": unchanged",
		"ConfigMap copy: foreign", "ConfigMap old: deleted")

	report = must(set.Delete(t.Context(), app))(t)
	if report.Remaining() != "" {
		t.Errorf("left: %s", report.Remaining())
	}
	for _, gone := range []kube.Key{e.key("near"), {Namespace: other, Name: "far"}} {
		if e.get(gone) != nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if e.get(kube.Key{Namespace: other, Name: "copy"}) == nil {
		t.Error("the user's copy was deleted")
	}
	if _, err := client.Get[*rbacv1.ClusterRole](t.Context(), e.c, kube.KeyOf(role)); !errors.Is(err, client.ErrGone) {
		t.Errorf("the ClusterRole: %v", err)
	}
}

// A cluster-scoped owner is the controller of children in every namespace, and the garbage collector deletes them.
func TestClusterScopedOwner(t *testing.T) {
	e := newEnv(t)
	owner := &unstructured.Unstructured{}
	owner.SetGroupVersionKind(clusterAppKind)
	owner.SetName(e.namespace)
	owner = must(client.Create(t.Context(), e.c, owner))(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-web"}}
	set := e.set()
	e.apply(set, owner, owned.Of(e.configMap("a"), role)...)
	if got := e.get(e.key("a")); !metav1.IsControlledBy(got, owner) {
		t.Errorf("its owners: %v", got.OwnerReferences)
	}
	e.want(e.apply(set, owner, owned.Of(role)...).Results, "ClusterRole "+role.Name+": unchanged", "ConfigMap a: deleted")
	e.apply(set, owner, owned.Of(e.configMap("a"), role)...)
	if err := client.Delete(t.Context(), e.c, owner); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() string {
		if e.get(e.key("a")) != nil {
			return "the garbage collector has not deleted the child"
		}
		return ""
	})
}

// If the owner is deleted, but the cache does not show it yet, no child is created that the garbage collector would not
// find. If the owner is terminating, no child is created at all.
func TestApplyForDeletedOwner(t *testing.T) {
	e := newEnv(t)
	other := clustertest.Namespace(t, e.c)
	set := e.set(func(c *owned.Config) { c.Namespaces = []string{other} })
	app := e.app("web")
	if err := client.Delete(t.Context(), e.c, app); err != nil {
		t.Fatal(err)
	}
	report, err := set.Apply(t.Context(), app, owned.Of(configMapIn(other, "far"))...)
	if !errors.Is(err, client.ErrGone) {
		t.Errorf("the error is %v", err)
	}
	e.want(report.Results, "ConfigMap far: failed")
	second := e.app("web") // with the same name
	if _, err := set.Apply(t.Context(), app, owned.Of(configMapIn(other, "far"))...); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("the error is %v", err)
	}
	if e.get(kube.Key{Namespace: other, Name: "far"}) != nil {
		t.Error("it was created")
	}

	second.SetDeletionTimestamp(new(metav1.Now()))
	report = e.apply(set, second, owned.Of(e.configMap("near"))...)
	if !report.OwnerTerminating || report.Ready() || len(report.Results) != 0 || e.get(e.key("near")) != nil {
		t.Errorf("%+v", report)
	}
}

// A run with a stale owner prunes no child that a run with the current owner has created.
func TestStaleOwnerPrunesNothing(t *testing.T) {
	e := newEnv(t)
	set, old := e.set(), e.app("web")
	e.apply(set, old, owned.Of(e.configMap("a"))...)
	next := old.DeepCopy()
	next.Object["spec"] = map[string]any{"size": int64(2)}
	next = must(client.Update(t.Context(), e.c, next))(t)
	e.apply(set, next, owned.Of(e.configMap("a"), e.configMap("b"))...)

	report := e.apply(set, old, owned.Of(e.configMap("a"))...)
	e.want(report.Results, "ConfigMap a: unchanged", "ConfigMap b: waiting")
	if e.get(e.key("b")) == nil || !strings.Contains(report.Remaining(), "the owner has changed") {
		t.Errorf("left: %s", report.Remaining())
	}
	e.want(e.apply(set, next, owned.Of(e.configMap("a"))...).Results, "ConfigMap a: unchanged", "ConfigMap b: deleted")
}

// Kinds that the cluster does not serve, or does not serve anymore, have no objects.
func TestKindsNotServed(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(func(c *owned.Config) {
		c.Kinds = append(c.Kinds, schema.GroupVersionKind{Group: "nowhere.example.com", Version: "v1", Kind: "Nothing"})
	}), e.app("web")
	e.want(e.apply(set, app, owned.Of(e.configMap("a"))...).Results, "ConfigMap a: created")
	seen := newCalls()
	seen.WithDiscovery = true
	must(set.Apply(kube.ObserveCalls(t.Context(), seen), app, owned.Of(e.configMap("a"))...))(t)
	if requests := seen.Take(); slices.Contains(requests, fixture.Discovery) {
		t.Errorf("asked again: %q", requests)
	}
	if report := must(set.Delete(kube.ObserveCalls(t.Context(), seen), app))(t); report.Remaining() != "" {
		t.Error(report.Remaining())
	}
	if !slices.Contains(seen.Take(), fixture.Discovery) {
		t.Error("a deletion has believed what was remembered")
	}
}

// A kind that was not served at first is discovered when a child of it is desired. From then on it is checked even if
// no child of it is desired: no later event would enqueue the owner.
func TestKindsServedLater(t *testing.T) {
	e := newEnv(t)
	delayed := schema.GroupVersionKind{Group: "late.example.com", Version: "v1", Kind: "Late"}
	set, app := e.set(func(c *owned.Config) { c.Kinds = append(c.Kinds, delayed) }), e.app("web")
	e.apply(set, app)
	e.define(delayed, "lates", "Namespaced")
	named := func(name string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(delayed)
		obj.SetName(name)
		return obj
	}
	e.apply(set, app, owned.Of(named("a"), named("b"))...)
	e.want(e.apply(set, app, owned.Of(named("a"))...).Results, "Late a: unchanged", "Late b: deleted")
	e.want(e.apply(set, app).Results, "Late a: deleted")
}

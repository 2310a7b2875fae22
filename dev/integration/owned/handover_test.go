package owned

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/retry"
)

// behind returns a set that reads ConfigMaps from a cache that shows the objects that the test puts into it.
func (e env) behind(change ...func(*owned.Config)) (*owned.Set, *frozen) {
	e.Helper()
	cache := &frozen{t: e.T, objects: map[kube.Key]*corev1.ConfigMap{}}
	cached := clustertest.Client(e, e.cluster, cache.shown())
	return e.set(append([]func(*owned.Config){func(c *owned.Config) { c.Client = cached }}, change...)...), cache
}

func (e env) merge(obj *corev1.ConfigMap, patch string) {
	e.Helper()
	must(client.Patch(e.Context(), e.c, obj, client.RawPatch(types.MergePatchType, []byte(patch))))(e)
}

// An object that a user has removed from the set, to keep it, is not deleted by a run with a cache that still shows it
// as a child.
func TestPruneKeepsObjectRemovedFromSet(t *testing.T) {
	anyCluster.Test(t, testPruneKeepsObjectRemovedFromSet)
}

func testPruneKeepsObjectRemovedFromSet(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	app := e.app("web")
	set, cache := e.behind()
	e.apply(set, app, owned.Of(e.configMap("kept"), e.configMap("freed"))...)
	for _, name := range []string{"kept", "freed"} {
		cache.objects[e.key(name)] = e.get(e.key(name))
	}
	e.merge(e.configMap("kept"), `{"metadata":{"labels":null,"annotations":null,"ownerReferences":null}}`)
	e.merge(e.configMap("freed"), `{"metadata":{"labels":{"evenkeel.dev/owner-uid":null}}}`)

	report := e.apply(set, app)
	e.want(report.Results, "ConfigMap freed: foreign", "ConfigMap kept: foreign")
	if e.get(e.key("kept")) == nil || e.get(e.key("freed")) == nil {
		t.Error("it was deleted")
	}
	if report.Remaining() != "" {
		t.Errorf("left: %s", report.Remaining())
	}
}

// A terminating object is not deleted again, even if the cache does not show the deletion yet.
func TestPruneReportsTerminatingChild(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	current := e.set()
	e.apply(current, app, owned.Of(e.configMap("held"))...)
	shown := e.get(e.key("held"))
	e.stuck(current, app, "held", "example.com/volume")
	set, cache := e.behind()
	cache.objects[e.key("held")] = shown

	report := e.apply(set, app)
	e.want(report.Results, "ConfigMap held: terminating")
	if !strings.Contains(report.Remaining(), "example.com/volume") {
		t.Errorf("remaining %q", report.Remaining())
	}
}

// An object that is an orphan in the cache, but belongs to another owner now, is not adopted.
func TestAdoptionRequiresOrphan(t *testing.T) {
	e := newEnv(t)
	app, other := e.app("web"), clustertest.Namespace(t, e.c)
	set, cache := e.behind(func(c *owned.Config) { c.AdoptOrphans, c.Namespaces = true, []string{other} })
	wanted := configMapIn(other, "wanted", "of", "nobody")
	cache.objects[kube.KeyOf(wanted)] = must(client.Create(t.Context(), e.c, wanted))(t)
	theirs := e.set(func(c *owned.Config) { c.Name, c.AdoptOrphans, c.Namespaces = "another", true, []string{other} })
	e.apply(theirs, e.app("first"), owned.Of(configMapIn(other, "wanted", "of", "them"))...)

	report, err := set.Apply(t.Context(), app, owned.Of(configMapIn(other, "wanted", "of", "us"))...)
	e.want(report.Results, "ConfigMap wanted: foreign")
	if _, ok := errors.AsType[*owned.ForeignError](err); !ok {
		t.Errorf("the error is %v", err)
	}
	if got := e.get(kube.KeyOf(wanted)); got.Labels[owned.LabelSet] != "another" || got.Data["of"] != "them" {
		t.Errorf("it was taken: %v %v", got.Labels, got.Data)
	}
}

// If the owner is deleted during a run, the run creates no more children that would never be deleted.
func TestOwnerDeletedDuringApply(t *testing.T) {
	e := newEnv(t)
	app, other := e.app("web"), clustertest.Namespace(t, e.c)
	watching := must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if err := next(ctx, r); err != nil || r.Key.Name != "first" {
					return err
				}
				return client.Delete(ctx, e.c, app)
			}
		}, client.VerbApply)}
	}))(t)
	set := e.set(func(c *owned.Config) { c.Client, c.Namespaces = watching, []string{other} })
	report, err := set.Apply(t.Context(), app, owned.Of(configMapIn(other, "first"), configMapIn(other, "second"))...)
	e.want(report.Results, "ConfigMap first: created", "ConfigMap second: failed")
	if !errors.Is(err, client.ErrGone) || e.get(kube.Key{Namespace: other, Name: "second"}) != nil {
		t.Errorf("the error is %v", err)
	}
}

// The garbage collector deletes a child of an earlier owner of the same name soon. The run waits for it and reports no
// failure, because no action is necessary.
func TestApplyWaitsForChildrenOfFormerOwner(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	earlier := app.DeepCopy()
	earlier.SetUID("earlier")
	old := e.configMap("old")
	old.Finalizers = []string{"example.com/volume"} // so that the garbage collector cannot remove it
	if err := ownerref.SetController(t.Context(), e.c, earlier, old); err != nil {
		t.Fatal(err)
	}
	must(client.Create(t.Context(), e.c, old))(t)
	t.Cleanup(func() { e.free("old") })
	for _, adopt := range []bool{false, true} {
		set := e.set(func(c *owned.Config) { c.AdoptOrphans = adopt })
		report, err := set.Apply(t.Context(), app, owned.Of(e.configMap("old"))...)
		e.want(report.Results, "ConfigMap old: foreign")
		foreign, ok := errors.AsType[*owned.ForeignError](err)
		if !ok || !foreign.Former || !strings.Contains(err.Error(), "an earlier object of that name that is gone") {
			t.Errorf("the error is %v", err)
		}
		if states := report.States(); len(states) != 1 || states[0].Status != readiness.InProgress {
			t.Errorf("the states are %v", states)
		}
	}
}

// An owner of the same name in another namespace is not an earlier owner: the garbage collector does not delete its
// children.
func TestChildrenOfSameNameInOtherNamespaceAreForeign(t *testing.T) {
	e := newEnv(t)
	app, far := e.app("web"), clustertest.Namespace(t, e.c)
	namesake := app.DeepCopy()
	namesake.SetNamespace(far)
	namesake.SetResourceVersion("")
	namesake.SetUID("")
	namesake = must(client.Create(t.Context(), e.c, namesake))(t)
	theirs := configMapIn(far, "shared")
	if err := ownerref.SetController(t.Context(), e.c, namesake, theirs); err != nil {
		t.Fatal(err)
	}
	must(client.Create(t.Context(), e.c, theirs))(t)
	set := e.set(func(c *owned.Config) { c.Namespaces = []string{far} })
	report, err := set.Apply(t.Context(), app, owned.Of(configMapIn(far, "shared"))...)
	foreign, ok := errors.AsType[*owned.ForeignError](err)
	if !ok || foreign.Former {
		t.Errorf("the error is %v", err)
	}
	if states := report.States(); len(states) != 1 || states[0].Status != readiness.Failed {
		t.Errorf("the states are %v", states)
	}
}

// An owner cannot be its own child.
func TestOwnerAsChildIsRejected(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	set := e.set(func(c *owned.Config) { c.Kinds, c.AdoptOrphans = []schema.GroupVersionKind{appKind}, true })
	itself := &unstructured.Unstructured{}
	itself.SetGroupVersionKind(appKind)
	itself.SetName("web")
	if _, err := set.Apply(t.Context(), app, owned.Of(itself)...); err == nil || !strings.Contains(err.Error(), "is the owner") {
		t.Errorf("the error is %v", err)
	}
}

// Children are found after the version in which the program knew their kind is not served anymore.
func TestKindsInVersionsNotServed(t *testing.T) {
	e := newEnv(t)
	app, other := e.app("web"), clustertest.Namespace(t, e.c)
	past := schema.GroupVersionKind{Group: "past.example.com", Version: "v1alpha1", Kind: "Widget"}
	now := schema.GroupVersionKind{Group: past.Group, Version: "v1", Kind: past.Kind}
	served := func(alpha bool) *unstructured.Unstructured {
		crd := definition(now, "widgets", "Namespaced")
		version := func(name string, served, storage bool) any {
			return map[string]any{"name": name, "served": served, "storage": storage, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}
		}
		crd.Object["spec"].(map[string]any)["versions"] = []any{version("v1", true, true), version("v1alpha1", alpha, false)}
		return crd
	}
	must(client.Apply(t.Context(), e.c, served(true)))(t)
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(past)
	widget.SetNamespace(other)
	widget.SetName("w")
	configure := func(c *owned.Config) { c.Kinds, c.Namespaces = []schema.GroupVersionKind{past}, []string{other} }
	clustertest.Eventually(t, func() string {
		report, err := e.set(configure).Apply(t.Context(), app, owned.Of(widget)...)
		return unready(report, err)
	})
	must(client.Apply(t.Context(), e.c, served(false)))(t)
	fresh := func() *client.Client { return clustertest.Client(t, clustertest.Connect(t, e.config)) }
	clustertest.Eventually(t, func() string {
		if _, err := client.All[*metav1.PartialObjectMetadata](t.Context(), fresh(), kube.Selection{Kind: past}); !errors.Is(err, kube.ErrNotServed) {
			return "the old version is still served"
		}
		if _, err := client.All[*metav1.PartialObjectMetadata](t.Context(), fresh(), kube.Selection{Kind: now}); err != nil {
			return err.Error()
		}
		return ""
	})

	// The API server may reject lists for a moment while it changes versions.
	throttled := func(err error) bool { return retry.Classify(err) == retry.Throttled }
	// A program that has cached the version, and one that starts now.
	for name, c := range map[string]*client.Client{"running": e.c, "started": fresh()} {
		set := e.set(configure, func(config *owned.Config) { config.Client = c })
		clustertest.Eventually(t, func() string {
			plan, err := set.Plan(t.Context(), app)
			switch {
			case throttled(err):
				return err.Error()
			case err != nil || len(plan.Results) != 1 || plan.Results[0].Outcome != owned.Deleted:
				t.Errorf("%s: %s, %v", name, plan, err)
			}
			return ""
		})
	}
	clustertest.Eventually(t, func() string {
		report, err := e.set(configure).Delete(t.Context(), app)
		if throttled(err) {
			return err.Error()
		}
		e.want(must(report, err)(t).Results, "Widget w: deleted")
		return ""
	})
	if exists := must(client.Exists[*metav1.PartialObjectMetadata](t.Context(), e.c, kube.KeyOf(widget), client.OfKind(now)))(t); exists {
		t.Error("it was left behind")
	}
}

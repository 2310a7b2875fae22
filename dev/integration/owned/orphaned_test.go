package owned

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// orphan deletes an owner as kubectl delete --cascade=orphan does, and waits until the garbage collector has removed
// the owner reference of the ConfigMap. A finalizer of the test holds the owner.
func (e env) orphan(app *unstructured.Unstructured, name string) {
	e.Helper()
	merge := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`))
	must(client.Patch(e.Context(), e.c, app, merge))(e)
	e.Cleanup(func() {
		free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		_, _ = client.Patch(e.Context(), e.c, app, free)
	})
	if err := client.Delete(e.Context(), e.c, app, client.Propagation(metav1.DeletePropagationOrphan)); err != nil {
		e.Fatal(err)
	}
	clustertest.Eventually(e, func() string {
		if len(e.get(e.key(name)).OwnerReferences) > 0 {
			return "the child still has its owner reference"
		}
		return ""
	})
}

// A run that began before its owner was deleted with --cascade=orphan never restores the owner reference of a child:
// the garbage collector would delete the child with the owner.
func TestApplyKeepsOrphanedChildWithoutReference(t *testing.T) {
	for what, test := range map[string]struct {
		cached bool // the cache still shows the reference
		change func(*owned.Config)
		child  func(*owned.Child)
	}{
		"cached":                          {cached: true},
		"by labels":                       {},
		"create-only, cached":             {cached: true, child: func(c *owned.Child) { c.CreateOnly = true }},
		"create-only, by labels":          {child: func(c *owned.Child) { c.CreateOnly = true }},
		"former managers, cached":         {cached: true, change: func(c *owned.Config) { c.FormerManagers = []string{"old"} }},
		"former managers, by labels":      {change: func(c *owned.Config) { c.FormerManagers = []string{"old"} }},
		"orphans are adopted, cached":     {cached: true, change: func(c *owned.Config) { c.AdoptOrphans = true }},
		"orphans are adopted, by labels":  {change: func(c *owned.Config) { c.AdoptOrphans = true }},
		"conflicts are reported, by both": {change: func(c *owned.Config) { c.OnConflict = owned.ReportConflicts }},
	} {
		t.Run(what, func(t *testing.T) {
			e := newEnv(t)
			app := e.app("web")
			child := owned.Child{Object: e.configMap("settings", "colour", "blue")}
			if test.child != nil {
				test.child(&child)
			}
			e.apply(e.set(), app, child)
			shown := e.get(e.key("settings"))
			if test.child != nil { // otherwise nothing would be written
				delete(shown.Annotations, "evenkeel.dev/child")
				e.merge(shown, `{"metadata":{"annotations":{"evenkeel.dev/child":null}}}`)
			}
			e.orphan(app, "settings")
			set := e.set(func(c *owned.Config) {
				if test.change != nil {
					test.change(c)
				}
			})
			if test.cached {
				var cache *frozen
				set, cache = e.behind(func(c *owned.Config) {
					if test.change != nil {
						test.change(c)
					}
				})
				cache.objects[e.key("settings")] = shown
			}
			child.Object = e.configMap("settings", "colour", "red")
			_, err := set.Apply(t.Context(), app, child)
			if !errors.Is(err, client.ErrTerminating) {
				t.Errorf("the error is %v", err)
			}
			if got := e.get(e.key("settings")); len(got.OwnerReferences) > 0 || got.Data["colour"] != "blue" {
				t.Errorf("the orphaned child was changed: %v %v", got.OwnerReferences, got.Data)
			}
		})
	}
}

// A child whose status changes all the time is updated although the cache is behind.
func TestApplyUpdatesChildThatCacheShowsOutdated(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	set, cache := e.behind()
	e.apply(set, app, owned.Of(e.configMap("busy", "colour", "blue"))...)
	cache.objects[e.key("busy")] = e.get(e.key("busy"))
	e.merge(e.configMap("busy"), `{"metadata":{"annotations":{"heartbeat":"1"}}}`)
	e.want(e.apply(set, app, owned.Of(e.configMap("busy", "colour", "red"))...).Results, "ConfigMap busy: updated")
}

// A child that a user has handed over to another owner is neither changed nor taken back by a run with a cache that
// does not show that yet.
func TestApplyKeepsObjectHandedOver(t *testing.T) {
	e := newEnv(t)
	app, other := e.app("web"), clustertest.Namespace(t, e.c)
	set, cache := e.behind(func(c *owned.Config) { c.Namespaces = []string{other} })
	far := configMapIn(other, "far", "colour", "blue")
	e.apply(set, app, owned.Of(far)...)
	shown := e.get(kube.KeyOf(far))
	cache.objects[kube.KeyOf(far)] = shown
	e.merge(shown, `{"metadata":{"labels":{"evenkeel.dev/set":"another","evenkeel.dev/owner-uid":"4711"}}}`)

	report, err := set.Apply(t.Context(), app, owned.Of(configMapIn(other, "far", "colour", "red"))...)
	e.want(report.Results, "ConfigMap far: foreign")
	if _, ok := errors.AsType[*owned.ForeignError](err); !ok {
		t.Errorf("the error is %v", err)
	}
	if got := e.get(kube.KeyOf(far)); got.Labels[owned.LabelSet] != "another" || got.Data["colour"] != "blue" {
		t.Errorf("it was taken back: %v %v", got.Labels, got.Data)
	}
}

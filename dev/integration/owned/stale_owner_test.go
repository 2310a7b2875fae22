package owned

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// A run with a stale owner does not recreate a child that a run with the current owner has applied.
func TestStaleOwnerRecreatesNothing(t *testing.T) {
	e := newEnv(t)
	set, old := e.set(), e.app("web")
	frozenConfig := func(colour string) *corev1.ConfigMap {
		config := e.configMap("frozen", "colour", colour)
		config.Immutable = new(true)
		return config
	}
	next := old.DeepCopy()
	next.Object["spec"] = map[string]any{"size": int64(2)}
	next = must(client.Update(t.Context(), e.c, next))(t)
	e.apply(set, next, recreated(frozenConfig("red"))...)
	uid := e.get(e.key("frozen")).UID

	report := e.apply(set, old, recreated(frozenConfig("blue"))...)
	e.want(report.Results, "ConfigMap frozen: waiting")
	if got := e.get(e.key("frozen")); got == nil || got.UID != uid {
		t.Fatal("the child of the new state was deleted for an old one")
	}
	if report.Ready() || !strings.Contains(report.Pending(), "the owner has changed") {
		t.Errorf("ready %t, pending %q", report.Ready(), report.Pending())
	}
	e.want(e.apply(set, next, recreated(frozenConfig("blue"))...).Results, "ConfigMap frozen: recreating")
}

// A user's copy of a child, under the name of another child, belongs to the user.
func TestCopyInPlaceOfChildIsForeign(t *testing.T) {
	e := newEnv(t)
	other := clustertest.Namespace(t, e.c)
	set, app := e.set(func(c *owned.Config) { c.Namespaces = []string{other} }), e.app("web")
	e.apply(set, app, owned.Of(configMapIn(other, "far", "of", "the set"))...)
	far := e.get(kube.Key{Namespace: other, Name: "far"})
	duplicate := configMapIn(other, "copy", "of", "a user")
	duplicate.Labels, duplicate.Annotations = far.Labels, far.Annotations
	must(client.Create(t.Context(), e.c, duplicate))(t)

	report, err := set.Apply(t.Context(), app, owned.Of(configMapIn(other, "far", "of", "the set"), configMapIn(other, "copy", "of", "the set"))...)
	e.want(report.Results, "ConfigMap far: unchanged", "ConfigMap copy: foreign")
	if _, ok := errors.AsType[*owned.ForeignError](err); !ok || !strings.Contains(err.Error(), "copy of "+other+"/far") {
		t.Errorf("the error is %v", err)
	}
	if got := e.get(kube.Key{Namespace: other, Name: "copy"}).Data["of"]; got != "a user" {
		t.Errorf("the user's object was changed: %q", got)
	}
}

// Finalizers are removed from children only.
func TestFinalizersOfOrphansAreKept(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	set := e.set(func(c *owned.Config) {
		c.AdoptOrphans, c.ForceRemoveFinalizers = true, map[string]time.Duration{"example.com/volume": time.Nanosecond}
	})
	users := e.configMap("users")
	users.Finalizers = []string{"example.com/volume"}
	users = must(client.Create(t.Context(), e.c, users))(t)
	t.Cleanup(func() { e.free("users") })
	if err := client.Delete(t.Context(), e.c, users); err != nil {
		t.Fatal(err)
	}
	report := e.apply(set, app, owned.Of(e.configMap("users"))...)
	e.want(report.Results, "ConfigMap users: terminating")
	if got := report.Pending(); strings.Contains(got, "force-removed") || e.get(e.key("users")) == nil {
		t.Errorf("the user's object was released: %+v", got)
	}
}

// The labels and annotations of the set are restored on a CreateOnly child: without them, it would not be found when it
// is not desired anymore.
func TestCreateOnlyRestoresLabels(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	child := owned.Child{Object: e.configMap("once", "password", "first"), CreateOnly: true}
	e.apply(set, app, child)
	for what, patch := range map[string]string{
		"the labels": `{"metadata":{"labels":null}}`, "the annotations": `{"metadata":{"annotations":null}}`,
		"the owner references": `{"metadata":{"ownerReferences":null}}`,
	} {
		must(client.Patch(t.Context(), e.c, e.configMap("once"), client.RawPatch(types.MergePatchType, []byte(patch))))(t)
		report := e.apply(set, app, child)
		e.want(report.Results, "ConfigMap once: updated")
		if len(report.Results[0].Changed) == 0 || !report.Ready() {
			t.Errorf("without %s: ready %t, changed %v", what, report.Ready(), report.Results[0].Changed)
		}
		got := e.get(e.key("once"))
		if keys := owned.OwnerKeys[*corev1.ConfigMap]("webapp")(got); !slices.Equal(keys, []kube.Key{e.key("web")}) || !metav1.IsControlledBy(got, app) {
			t.Errorf("without %s: %+v", what, got.ObjectMeta)
		}
		if got.Data["password"] != "first" {
			t.Errorf("without %s: the data is %v now", what, got.Data)
		}
	}
	e.want(e.apply(set, app, child).Results, "ConfigMap once: unchanged")
	e.want(e.apply(set, app).Results, "ConfigMap once: deleted")
}

// A CreateOnly child of an earlier owner keeps its fields, although the set has applied them.
func TestCreateOnlyAdoptsChildOfFormerOwner(t *testing.T) {
	e := newEnv(t)
	other := clustertest.Namespace(t, e.c)
	set, app := e.set(func(c *owned.Config) { c.Namespaces, c.AdoptOrphans = []string{other}, true }), e.app("web")
	child := owned.Child{Object: configMapIn(other, "once", "password", "first"), CreateOnly: true}
	e.apply(set, app, child)
	if err := client.Delete(t.Context(), e.c, app); err != nil {
		t.Fatal(err)
	}
	next := e.app("web")
	child.Object = configMapIn(other, "once", "password", "second")
	e.want(e.apply(set, next, child).Results, "ConfigMap once: updated")
	got := e.get(kube.Key{Namespace: other, Name: "once"})
	if got.Data["password"] != "first" || got.Labels["evenkeel.dev/owner-uid"] != string(next.GetUID()) {
		t.Errorf("%+v", got)
	}
	e.want(e.apply(set, next, child).Results, "ConfigMap once: unchanged")
}

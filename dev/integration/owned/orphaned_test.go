package owned

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		"former managers, cached":         {cached: true, change: func(c *owned.Config) { c.Former.Managers = []string{"old"} }},
		"former managers, by labels":      {change: func(c *owned.Config) { c.Former.Managers = []string{"old"} }},
		"orphans are adopted, cached":     {cached: true, change: func(c *owned.Config) { c.AdoptOrphans = true }},
		"orphans are adopted, by labels":  {change: func(c *owned.Config) { c.AdoptOrphans = true }},
		"conflicts are reported, by both": {change: func(c *owned.Config) { c.ReportConflicts = true }},
	} {
		t.Run(what, inBubble(func(t *testing.T) {
			t.Helper()
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
		}))
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
func TestApplyKeepsObjectHandedOver(t *testing.T) { anyCluster.Test(t, testApplyKeepsObjectHandedOver) }

func testApplyKeepsObjectHandedOver(t *testing.T) {
	t.Helper()
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

// meddle returns a client that makes a change to an object when it is about to be deleted, as a user does who is faster.
func (e env) meddle(name, patch string) *client.Client {
	return must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			done := false
			return func(ctx context.Context, r *client.Request) error {
				if !done && r.Key.Name == name {
					done = true
					edit := client.RawPatch("application/merge-patch+json", []byte(patch))
					if _, err := client.Patch(ctx, e.c, configMapIn(r.Key.Namespace, name), edit); err != nil {
						return err
					}
				}
				return next(ctx, r)
			}
		}, client.VerbDelete)}
	}))(e)
}

// Delete keeps a child that a user hands over after it was listed, and deletes one that only its status controller has
// written since.
func TestDeleteKeepsObjectHandedOver(t *testing.T) {
	for patch, want := range map[string]string{
		`{"metadata":{"labels":{"evenkeel.dev/set":"another","evenkeel.dev/owner-uid":"4711"}}}`: "ConfigMap busy: foreign",
		`{"metadata":{"labels":{"evenkeel.dev/owner-uid":null}}}`:                                "ConfigMap busy: foreign",
		`{"metadata":{"ownerReferences":null}}`:                                                  "ConfigMap busy: foreign",
		`{"metadata":{"annotations":{"heartbeat":"1"}}}`:                                         "ConfigMap busy: deleted",
	} {
		t.Run(patch, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app := e.app("web")
			e.apply(e.set(), app, owned.Of(e.configMap("busy"))...)
			set := e.set(func(c *owned.Config) { c.Client = e.meddle("busy", patch) })
			report := must(set.Delete(t.Context(), app))(t)
			e.want(report.Results, want)
			if (e.get(e.key("busy")) == nil) != strings.HasSuffix(want, "deleted") {
				t.Errorf("%s, and the object is %v", want, e.get(e.key("busy")))
			}
		}))
	}
}

// An owner that is deleted with --cascade=orphan keeps the children that the garbage collector can orphan. Others would
// be left behind.
func TestDeleteKeepsChildrenOfOwnerDeletedWithOrphan(t *testing.T) {
	anyCluster.Test(t, testDeleteKeepsChildrenOfOwnerDeletedWithOrphan)
}

func testDeleteKeepsChildrenOfOwnerDeletedWithOrphan(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	app, other := e.app("web"), clustertest.Namespace(t, e.c)
	set := e.set(func(c *owned.Config) { c.Namespaces = []string{other} })
	e.apply(set, app, owned.Of(e.configMap("near"), configMapIn(other, "far"))...)
	terminating := app.DeepCopy() // as it is before the garbage collector orphans the children
	terminating.SetDeletionTimestamp(new(metav1.Now()))
	terminating.SetFinalizers([]string{metav1.FinalizerOrphanDependents})
	report := must(set.Delete(t.Context(), terminating))(t)
	// The results are sorted by namespaces, whose names are random.
	slices.SortFunc(report.Results, func(a, b owned.Result) int { return strings.Compare(a.Key.Name, b.Key.Name) })
	e.want(report.Results, "ConfigMap far: deleted", "ConfigMap near: foreign")
	if report.Remaining() != "" || e.get(e.key("near")) == nil {
		t.Errorf("all deleted: %t, near is %v", report.Remaining() == "", e.get(e.key("near")))
	}
}

// The finalizers of an object that is not a child anymore are never removed.
func TestFinalizersOfObjectHandedOverAreKept(t *testing.T) {
	anyCluster.Test(t, testFinalizersOfObjectHandedOverAreKept)
}

func testFinalizersOfObjectHandedOverAreKept(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	app := e.app("web")
	current := e.set()
	e.apply(current, app, owned.Of(e.configMap("held"))...)
	e.stuck(current, app, "held", "example.com/volume")
	set, cache := e.behind(func(c *owned.Config) {
		c.ForceRemoveFinalizers = map[string]time.Duration{"example.com/volume": time.Nanosecond}
	})
	cache.objects[e.key("held")] = e.get(e.key("held"))
	e.merge(e.configMap("held"), `{"metadata":{"labels":{"evenkeel.dev/set":"another"}}}`)
	report := e.apply(set, app, owned.Of(e.configMap("held"))...)
	e.want(report.Results, "ConfigMap held: terminating")
	if got := e.get(e.key("held")); got == nil || len(got.Finalizers) == 0 {
		t.Errorf("the finalizer was removed: %v", got)
	}
}

// An apply with IfUnchanged that would change nothing makes no request, although the object has been written since; if
// the informer is behind the caller's object, the API server decides.
func TestUnchangedApplyNeedsNoPrecondition(t *testing.T) {
	e := newEnv(t)
	cache := &frozen{t: t, objects: map[kube.Key]*corev1.ConfigMap{}}
	cached := clustertest.Client(e, e.cluster, cache.shown())
	busy := e.configMap("busy", "colour", "blue")
	first := must(client.Apply(t.Context(), cached, busy))(t).Object
	e.merge(e.configMap("busy"), `{"metadata":{"annotations":{"heartbeat":"1"}}}`)
	now := e.get(e.key("busy"))
	seen := newCalls()
	ctx := kube.ObserveCalls(t.Context(), seen)
	for _, test := range []struct {
		what     string
		shown    *corev1.ConfigMap
		required string
		requests int
	}{
		{"informer is behind", first, now.ResourceVersion, 1},
		{"informer is ahead", now, first.ResourceVersion, 0},
		{"informer is current", now, now.ResourceVersion, 0},
	} {
		cache.objects[e.key("busy")] = test.shown
		busy.ResourceVersion = test.required
		applied, err := client.Apply(ctx, cached, busy, client.IfUnchanged())
		if requests := seen.Take(); err != nil || applied.Outcome != client.Unchanged || len(requests) != test.requests {
			t.Errorf("%s: %s, %v, requests %q", test.what, applied.Outcome, err, requests)
		}
	}
}

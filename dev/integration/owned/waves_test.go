package owned

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/source"
)

const volume = "example.com/volume"

// threeWaves returns children of three waves: base is applied first, top last. held has a finalizer.
func (e env) threeWaves() []owned.Child {
	e.Helper()
	held := e.configMap("held")
	held.Finalizers = []string{volume}
	e.Cleanup(func() { e.free("held") })
	return slices.Concat(owned.Wave(2, e.configMap("top")), owned.Wave(1, held, e.configMap("loose")), owned.Of(e.configMap("base")))
}

// wantUntouched fails if an object is terminating.
func (e env) wantUntouched(names ...string) {
	e.Helper()
	for _, name := range names {
		if obj := e.get(e.key(name)); obj == nil || obj.DeletionTimestamp != nil {
			e.Errorf("%s is deleted, or being deleted", name)
		}
	}
}

// The wave that was applied last is deleted first. Children of lower waves stay until it is gone, and report that they
// wait.
func TestDeleteWavesInReverse(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, e.threeWaves()...)
	want := []string{"ConfigMap top: deleted", "ConfigMap loose: deleted", "ConfigMap held: terminating", "ConfigMap base: waiting"}
	for range 2 { // a terminating child also blocks lower waves
		report := must(set.Delete(t.Context(), app))(t)
		e.want(report.Results, want...)
		e.wantUntouched("base")
		base := "ConfigMap " + e.key("base").String() + " waits: wave 1 is not gone: ConfigMap " + e.key("held").String() + ": it is being deleted since "
		if left := undesired(report); len(left) != 2 || !strings.Contains(report.Remaining(), base) || !strings.HasSuffix(left[1].Waits, "held by finalizers "+volume) {
			t.Errorf("remaining %q", report.Remaining())
		}
		want = want[2:]
	}
	e.free("held")
	report := must(set.Delete(t.Context(), app))(t)
	e.want(report.Results, "ConfigMap base: deleted")
	if report.Remaining() != "" {
		t.Error(report.Remaining())
	}
}

// A copy of a child does not block the waves below it.
func TestCopyDoesNotBlockWave(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, slices.Concat(owned.Wave(1, e.configMap("top")), owned.Of(e.configMap("base")))...)
	duplicate, top := e.configMap("copy"), e.get(e.key("top"))
	duplicate.Labels, duplicate.Annotations = top.Labels, top.Annotations
	must(client.Create(t.Context(), e.c, duplicate))(t)
	e.want(must(set.Delete(t.Context(), app))(t).Results, "ConfigMap top: deleted", "ConfigMap copy: foreign", "ConfigMap base: deleted")
}

// Undesired children are pruned in reverse order too: each run prunes one wave, after the higher waves are gone.
func TestPruneWavesInReverse(t *testing.T) {
	for _, prune := range []owned.Prune{owned.PruneLast, owned.PruneFirst} {
		e := newEnv(t)
		set, app := e.set(func(c *owned.Config) { c.Prune = prune }), e.app("web")
		e.apply(set, app, e.threeWaves()...)
		for _, want := range [][]string{
			{"ConfigMap top: deleted", "ConfigMap held: waiting", "ConfigMap loose: waiting", "ConfigMap base: waiting"},
			{"ConfigMap held: deleted", "ConfigMap loose: deleted", "ConfigMap base: waiting"},
			{"ConfigMap held: terminating", "ConfigMap base: waiting"},
		} {
			report := e.apply(set, app)
			e.want(report.Results, want...)
			e.wantUntouched("base")
			if last := report.Results[len(report.Results)-1]; !strings.Contains(last.Waits, " is not gone: ConfigMap ") {
				t.Errorf("waits: %q", last.Waits)
			}
		}
		e.free("held")
		e.want(e.apply(set, app).Results, "ConfigMap base: deleted")
		e.want(e.apply(set, app).Results)
	}
}

// A deleted child that the cache still shows blocks no wave and is not reported as pruned again.
func TestDeletedChildDoesNotBlockWave(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	set, cache := e.behind()
	e.apply(set, app, slices.Concat(owned.Wave(1, e.configMap("top")), owned.Of(e.configMap("base")))...)
	for _, name := range []string{"top", "base"} {
		cache.objects[e.key(name)] = e.get(e.key(name))
	}
	if err := client.Delete(t.Context(), e.c, e.configMap("top")); err != nil {
		t.Fatal(err)
	}
	e.want(e.apply(set, app).Results, "ConfigMap base: deleted")
}

// The wave annotation is set unless the wave is 0, and is updated when the wave changes, for CreateOnly children too.
func TestWaveAnnotation(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	for _, createOnly := range []bool{false, true} {
		name := map[bool]string{false: "applied", true: "once"}[createOnly]
		child := owned.Child{Object: e.configMap(name), CreateOnly: createOnly}
		for _, test := range []struct {
			wave    int
			want    string
			outcome owned.ChildOutcome
		}{
			{0, "", owned.Created},
			{0, "", owned.Unchanged},
			{-2, "-2", owned.Updated},
			{-2, "-2", owned.Unchanged},
			{0, "", owned.Updated},
			{7, "7", owned.Updated},
		} {
			child.Wave = test.wave
			e.want(e.apply(set, app, child).Results, "ConfigMap "+name+": "+string(test.outcome))
			got, noted := e.get(e.key(name)).Annotations["evenkeel.dev/wave"]
			if got != test.want || noted != (test.want != "") {
				t.Errorf("%s of wave %d has %q, %t", name, test.wave, got, noted)
			}
		}
		e.want(e.apply(set, app).Results, "ConfigMap "+name+": deleted")
	}
}

// A plan without children shows in which order they would be deleted, and writes nothing.
func TestPlanWithoutChildren(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, e.threeWaves()...)
	seen := newCalls()
	plan := must(set.Plan(kube.ObserveCalls(t.Context(), seen), app))(t)
	for _, call := range seen.Take() {
		if !strings.HasPrefix(call, "list ") && !strings.HasPrefix(call, "get ") && !strings.HasSuffix(call, "(dry run)") {
			t.Errorf("the plan has made the request %q", call)
		}
	}
	e.wantUntouched("top", "held", "loose", "base")
	in := " ConfigMap " + e.namespace + "/"
	waits := "    waits: wave 2 is not gone:" + in + "top is deleted first\n"
	want := "WebApp " + e.namespace + "/web: delete 4\n" +
		"-" + in + "top (wave 2)\n-" + in + "held (wave 1)\n" + waits + "-" + in + "loose (wave 1)\n" + waits + "-" + in + "base\n" + waits
	if got := plan.String(); got != want || !changes(plan) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	must(set.Delete(t.Context(), app))(t)
	plan = must(set.Plan(t.Context(), app))(t)
	e.want(plan.Results, "ConfigMap held: terminating", "ConfigMap base: deleted")
	if plan.Results[1].Waits == "" {
		t.Errorf("%s", plan)
	}
	e.free("held")
	must(set.Delete(t.Context(), app))(t)
	if plan := must(set.Plan(t.Context(), app))(t); changes(plan) || plan.String() != "WebApp "+e.namespace+"/web: no children\n" {
		t.Errorf("%s", plan)
	}
}

// When a child is gone, the controller continues with the lower waves: its source enqueues the owner, and nothing else
// does.
func TestControllerPrunesWavesInReverse(t *testing.T) {
	e := newEnv(t)
	selection := kube.Selection{LabelSelector: owned.LabelSet + "=webapp"}
	configs := must(informer.New(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](e.cluster, selection), Logger: clustertest.Logger(t),
	}))(t)
	cached := clustertest.Client(t, e.cluster, configs)
	set := e.set(func(c *owned.Config) {
		c.Client, c.Kinds = cached, []schema.GroupVersionKind{configMapKind}
	})
	children := e.threeWaves()
	clustertest.Run(t, controller.Config[*unstructured.Unstructured]{
		Name: "webapp", ResyncInterval: -1,
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](e.cluster, kube.Selection{Kind: appKind, Namespaces: []string{e.namespace}}),
		Handler: func(ctx context.Context, app *unstructured.Unstructured) error {
			desired := children
			if app.GetGeneration() > 1 {
				desired = nil
			}
			_, err := set.Apply(ctx, app, desired...)
			return err
		},
		Sources: []controller.Source{source.Mapped(configs, owned.OwnerKeys[*corev1.ConfigMap]("webapp"))},
	})
	app := e.app("web")
	e.eventually("the children", func() bool { return e.get(e.key("top")) != nil })
	must(client.Patch(t.Context(), e.c, app, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"size":2}}`))))(t)
	e.eventually("the end of the upper waves", func() bool {
		held := e.get(e.key("held"))
		return e.get(e.key("top")) == nil && e.get(e.key("loose")) == nil && held.DeletionTimestamp != nil
	})
	e.wantUntouched("base")
	e.free("held")
	e.eventually("the end of the last wave", func() bool { return e.get(e.key("base")) == nil })
}

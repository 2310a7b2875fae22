package owned

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// A plan writes nothing, hides the values of Secrets, and matches the following Apply.
func TestPlanMatchesApply(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	frozenConfig := e.configMap("frozen", "colour", "blue")
	frozenConfig.Immutable = new(true)
	secret := func(value string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "key"}, StringData: map[string]string{"password": value},
		}
	}
	e.apply(set, app, owned.Of(e.configMap("same"), e.configMap("changed", "colour", "blue"), e.configMap("old"),
		frozenConfig, secret("first-secret"))...)
	must(client.Create(t.Context(), e.c, e.configMap("foreign")))(t)

	recreated := frozenConfig.DeepCopy()
	recreated.Data["colour"] = "red"
	children := append(owned.Of(e.configMap("same"), e.configMap("changed", "colour", "red"), secret("second-secret"),
		e.configMap("new", "colour", "green"), e.configMap("foreign")), owned.Child{Object: recreated, Recreate: true})
	seen := newCalls()
	plan, planErr := set.Plan(kube.ObserveCalls(t.Context(), seen), app, children...)
	for _, call := range seen.Take() {
		if verb, _, _ := strings.Cut(call, " "); verb != "get" && verb != "list" && !strings.HasSuffix(call, "(dry run)") {
			t.Errorf("the plan has made the request %q", call)
		}
	}
	text := plan.String()
	for _, part := range []string{
		"WebApp " + e.namespace + "/web: create 1, update 2, recreate 1, delete 1, unchanged 1, not possible or not yet 1\n",
		"+ ConfigMap " + e.namespace + "/new\n    data.colour: none -> \"green\"\n",
		"~ ConfigMap " + e.namespace + "/changed\n    data.colour: \"blue\" -> \"red\"\n",
		"-/+ ConfigMap " + e.namespace + "/frozen\n    data cannot be changed\n",
		"! ConfigMap " + e.namespace + "/foreign\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the plan lacks %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "c2Vjb25k") {
		t.Errorf("the plan tells secrets:\n%s", text)
	}

	report, err := set.Apply(t.Context(), app, children...)
	if planErr == nil || err == nil {
		t.Errorf("the errors are %v and %v", planErr, err)
	}
	expected := slices.Clone(plan.Results)
	for n := range expected {
		if expected[n].Waits != "" { // the outcome after the foreign object is gone
			expected[n].Outcome = "waiting"
		}
	}
	if diff := cmp.Diff(outcomes(expected), outcomes(report.Results)); diff != "" {
		t.Error(diff)
	}
	for n, planned := range plan.Results {
		if planned.Outcome != owned.Updated {
			continue
		}
		if diff := cmp.Diff(planned.Changed, report.Results[n].Changed); diff != "" {
			t.Errorf("%s: %s", planned, diff)
		}
	}
}

// A plan includes waves that would wait, and children that would be pruned after them.
func TestPlanIncludesWaitingWaves(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, owned.Of(e.configMap("old"))...)
	plan := must(set.Plan(t.Context(), app, slices.Concat(owned.Of(e.loadBalancer("web")), owned.Wave(1, e.configMap("new")))...))(t)
	e.want(plan.Results, "Service web: created", "ConfigMap new: created", "ConfigMap old: deleted")
	if plan.Results[0].Waits != "" || plan.Results[1].Waits == "" || plan.Results[2].Waits == "" {
		t.Errorf("%+v", plan.Results)
	}
	if !changes(plan) || e.get(e.key("old")) == nil || e.get(e.key("new")) != nil {
		t.Error("the plan was carried out")
	}
	if plan := must(set.Plan(t.Context(), app, owned.Of(e.configMap("old"))...))(t); changes(plan) {
		t.Errorf("there is nothing to do, and the plan says\n%s", plan)
	}
}

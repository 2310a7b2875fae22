package controllers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

const budgetsPath = "policy/v1/poddisruptionbudgets"

// budget returns the manifest of PodDisruptionBudget web. spec is added to its spec.
func budget(spec string) string {
	return `{metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, ` + spec + `}}`
}

// budgetStatus returns the status of PodDisruptionBudget web.
func (w *world) budgetStatus() string {
	w.t.Helper()
	s := into[policyv1.PodDisruptionBudget](w, budgetsPath, "one/web").Status
	text := fmt.Sprintf("healthy=%d/%d expected=%d allowed=%d evicted=%d observed=%d", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods, s.DisruptionsAllowed, len(s.DisruptedPods), s.ObservedGeneration)
	for _, c := range s.Conditions {
		text += " " + c.Reason
		if c.Message != "" {
			text += ": " + c.Message
		}
	}
	return text
}

// evict evicts a Pod, and returns the code of the response.
func (w *world) evict(name string) int {
	w.t.Helper()
	code, _ := w.send("POST", path(podsPath, "one/"+name)+"/eviction", "application/json", map[string]any{"metadata": map[string]any{"name": name}})
	return code
}

func TestDisruptionBudgets(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(w *world){
		"drain": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 5 * time.Second} }
			w.apply(budgetsPath, budget("minAvailable: 2"))
			w.run(0)
			w.want("no Pods", w.budgetStatus(), "healthy=0/2 expected=0 allowed=0 evicted=0 observed=1 InsufficientPods")
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.want("ready", w.budgetStatus(), "healthy=3/2 expected=3 allowed=1 evicted=0 observed=1 SufficientPods")
			names := w.podNames()
			w.want("evictions", fmt.Sprint(w.evict(names[0]), w.evict(names[1])), fmt.Sprint(http.StatusCreated, http.StatusTooManyRequests))
			w.run(0)
			w.want("evicted", w.budgetStatus(), "healthy=2/2 expected=4 allowed=0 evicted=0 observed=1 InsufficientPods")
			w.run(time.Minute)
			w.want("replaced", w.budgetStatus(), "healthy=3/2 expected=3 allowed=1 evicted=0 observed=1 SufficientPods")
			w.want("eviction", fmt.Sprint(w.evict(w.podNames()[0])), fmt.Sprint(http.StatusCreated))
			writes := len(w.requests)
			w.run(time.Minute)
			idle := len(w.requests)
			w.run(time.Hour)
			w.want("writes of an idle budget", fmt.Sprint(idle > writes, w.requests[idle:]), "true []")
		},
		"percentage of the Deployment": func(w *world) {
			w.apply(budgetsPath, budget(`maxUnavailable: "50%"`))
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.want("ready", w.budgetStatus(), "healthy=3/1 expected=3 allowed=2 evicted=0 observed=1 SufficientPods")
			w.patch(budgetsPath, "one/web", `{spec: {maxUnavailable: null, minAvailable: "100%"}}`)
			w.run(0)
			w.want("changed", w.budgetStatus(), "healthy=3/3 expected=3 allowed=0 evicted=0 observed=2 InsufficientPods")
		},
		"Pods without a controller": func(w *world) {
			w.apply(budgetsPath, budget("maxUnavailable: 1"))
			w.apply(podsPath, pod("a", ""))
			w.run(time.Minute)
			w.want("status", w.budgetStatus(), "healthy=1/0 expected=0 allowed=0 evicted=0 observed=1 InsufficientPods")
		},
		"Pods of a StatefulSet": func(w *world) {
			w.apply(budgetsPath, strings.Replace(budget("maxUnavailable: 1"), "app: web", "app: db", 1))
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			w.want("status", w.budgetStatus(), "healthy=3/2 expected=3 allowed=1 evicted=0 observed=1 SufficientPods")
		},
		"Pods of a Job": func(w *world) {
			w.apply(budgetsPath, strings.Replace(budget("maxUnavailable: 1"), "matchLabels: {app: web}", "", 1))
			w.apply(jobsPath, job(""))
			w.run(0)
			w.want("status", w.budgetStatus(), "healthy=0/0 expected=0 allowed=0 evicted=0 observed=1 SyncFailed: jobs.batch does not implement the scale subresource")
		},
		"an eviction that does not delete the Pod": func(w *world) {
			w.apply(budgetsPath, budget("minAvailable: 0"))
			w.apply(podsPath, pod("a", ""))
			w.run(time.Minute)
			condition := metav1.Now().UTC().Format(time.RFC3339)
			w.send("PATCH", path(budgetsPath, "one/web")+"/status", "application/merge-patch+json",
				map[string]any{"status": map[string]any{"disruptedPods": map[string]any{"a": condition}}})
			w.send("PATCH", path(podsPath, "one/a")+"/status", "application/strategic-merge-patch+json", map[string]any{"status": map[string]any{"conditions": []any{
				map[string]any{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "lastTransitionTime": condition},
			}}})
			w.run(time.Minute)
			w.want("evicted", w.budgetStatus(), "healthy=0/0 expected=1 allowed=0 evicted=1 observed=1 InsufficientPods")
			w.want("condition", strings.Split(w.conditions(podsPath, "one/a", "True"), "\n")[0], "DisruptionTarget: EvictionByEvictionAPI")
			w.run(2 * time.Minute)
			w.want("timed out", w.budgetStatus(), "healthy=1/0 expected=1 allowed=1 evicted=0 observed=1 SufficientPods")
			w.want("condition", w.conditions(podsPath, "one/a", "False"), "DisruptionTarget")
		},
	})
}

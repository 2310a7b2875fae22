package controllers

import (
	"net/http"
	"strings"
	"testing"
)

// evict evicts a Pod, and returns the code of the response.
func (s *side) evict(pod string) int {
	s.t.Helper()
	code, _ := s.send(http.MethodPost, s.path("pods", pod, "eviction"), "application/json", "{metadata: {name: "+pod+"}}")
	return code
}

// allowed reports whether budget web allows n disruptions now.
func (s *side) allowed(n int) func() bool {
	return func() bool {
		budget := s.get(s.path("poddisruptionbudgets", "web"))
		status, _ := budget["status"].(map[string]any)
		return status["disruptionsAllowed"] == float64(n) && status["observedGeneration"] == budget["metadata"].(map[string]any)["generation"]
	}
}

func TestDisruptionBudgets(t *testing.T) {
	t.Parallel()
	budget := func(spec string) string {
		return "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, " + spec + "}}"
	}
	compare(t, "disruption budget", func(s *side) {
		s.create(s.path("poddisruptionbudgets"), budget("minAvailable: 2"))
		s.await("there is no Pod", s.allowed(0))
		s.create(s.path("statefulsets"), statefulSet(", podManagementPolicy: Parallel"))
		s.await("3 Pods are ready", s.allowed(1))
		s.patch(s.path("pods", "web-0"), "{metadata: {finalizers: [example.org/x]}}") // it is not replaced before the second eviction
		if code := s.evict("web-0"); code != http.StatusCreated {
			s.t.Errorf("%s: the first eviction: %d", s.base, code)
		}
		if code := s.evict("web-1"); code != http.StatusTooManyRequests {
			s.t.Errorf("%s: the second eviction: %d", s.base, code)
		}
		s.patch(s.path("pods", "web-0"), "{metadata: {finalizers: null}}")
		s.await("the Pod is replaced", s.allowed(1))
		s.patch(s.path("poddisruptionbudgets", "web"), `{spec: {minAvailable: null, maxUnavailable: "50%"}}`)
		s.await("half of the Pods may be evicted", s.allowed(2))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("1 Pod is left", s.allowed(1))
		s.delete(s.path("statefulsets", "web"), "Background")
		s.await("no Pod is left", func() bool { return s.gone("pods") && s.allowed(0)() })
	})
	compare(t, "budget of single Pods", func(s *side) {
		s.create(s.path("poddisruptionbudgets"), budget("maxUnavailable: 1"))
		s.create(s.path("pods"), servicePod("a", ""))
		s.await("the Pod has no controller", s.phase("a", "Running"))
		s.create(s.path("pods"), servicePod("b", neverReady))
		s.notReady("b")
		s.patch(s.path("poddisruptionbudgets", "web"), "{spec: {maxUnavailable: null, minAvailable: 1}}")
		s.await("1 of 2 Pods is ready", func() bool { return s.allowed(0)() && s.phase("b", "Running")() })
		if code := s.evict("b"); code != http.StatusCreated {
			s.t.Errorf("%s: eviction of a Pod that is not ready: %d", s.base, code)
		}
		if code := s.evict("a"); code != http.StatusTooManyRequests {
			s.t.Errorf("%s: eviction of the only ready Pod: %d", s.base, code)
		}
		s.await("1 Pod is left", func() bool { return s.get(s.path("pods", "b")) == nil })
	})
	compare(t, "budget of a job", func(s *side) {
		s.create(s.path("poddisruptionbudgets"), strings.Replace(budget("maxUnavailable: 1"), "matchLabels: {app: web}", "", 1))
		s.create(s.path("jobs"), "{apiVersion: batch/v1, kind: Job, metadata: {name: work}, spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, nodeSelector: {no: node}, "+
			"containers: [{name: c, image: registry.invalid/a}]}}}}")
		s.await("the calculation fails", func() bool {
			status, _ := s.get(s.path("poddisruptionbudgets", "web"))["status"].(map[string]any)
			return !s.gone("pods") && strings.Contains(strings.Join(describe(map[string]any{"kind": "x", "metadata": map[string]any{"name": "x"}, "status": status}, nil), ""), "SyncFailed")
		})
	})
}

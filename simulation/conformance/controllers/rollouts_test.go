package controllers

import (
	"net/http"
	"strings"
	"testing"
)

// status reports whether the latest generation of an object has the numbers in the fields of its status.
func (s *side) status(resource, name string, want map[string]int) func() bool {
	return func() bool {
		obj := s.get(s.path(resource, name))
		for field, n := range want {
			if number(obj, "status", field) != n {
				return false
			}
		}
		return number(obj, "status", "observedGeneration") == number(obj, "metadata", "generation")
	}
}

func TestRollouts(t *testing.T) {
	t.Parallel()
	const stuck = `{spec: {template: {spec: {nodeSelector: {no: node}}}}}`
	compare(t, "rollout that stalls and is rolled back", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), stuck)
		s.await("a new Pod waits for a node", s.status("deployments", "web", map[string]int{"replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1}))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 8}}")
		s.await("the old ReplicaSet is scaled too", s.status("deployments", "web", map[string]int{"replicas": 10}))
		s.patch(s.path("deployments", "web"), `{spec: {template: {spec: {nodeSelector: null}}}}`)
		s.await("8 Pods of the first revision are available", s.available(8))
	})
	compare(t, "scale to zero and back", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 0}}")
		s.await("there is no Pod", s.available(0))
		s.patch(s.path("deployments", "web"), image("2"))
		s.await("there is no new Pod", s.available(0))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 2}}")
		s.await("2 Pods are available", s.available(2))
	})
	compare(t, "create paused", func(s *side) {
		s.create(s.path("deployments"), deployment(", paused: true"))
		s.await("the Deployment is observed", s.status("deployments", "web", nil))
		s.patch(s.path("deployments", "web"), image("2"))
		s.patch(s.path("deployments", "web"), "{spec: {paused: false}}")
		s.await("3 Pods are available", s.available(3))
	})
	compare(t, "pause in a rollout", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), stuck)
		s.await("a new Pod waits for a node", s.status("deployments", "web", map[string]int{"replicas": 4, "updatedReplicas": 1}))
		s.patch(s.path("deployments", "web"), "{spec: {paused: true, replicas: 6}}")
		s.await("both ReplicaSets are scaled", s.status("deployments", "web", map[string]int{"replicas": 8}))
		s.patch(s.path("deployments", "web"), "{spec: {paused: false, template: {spec: {nodeSelector: null}}}}")
		s.await("6 Pods are available", s.available(6))
	})
	compare(t, "history limit of zero", func(s *side) {
		s.create(s.path("deployments"), deployment(", revisionHistoryLimit: 0"))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), image("2"))
		s.await("no old ReplicaSet remains", func() bool { return s.available(3)() && len(s.list("replicasets")) == 1 })
	})
	compare(t, "history limit of a stuck rollout", func(s *side) {
		s.create(s.path("deployments"), deployment(", revisionHistoryLimit: 0"))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), stuck)
		s.await("a new Pod waits for a node", s.status("deployments", "web", map[string]int{"replicas": 4, "updatedReplicas": 1}))
		s.patch(s.path("deployments", "web"), image("3"))
		s.await("a second new Pod waits for a node", s.status("deployments", "web", map[string]int{"replicas": 4, "updatedReplicas": 1}))
		s.patch(s.path("deployments", "web"), `{spec: {template: {spec: {nodeSelector: null}}}}`)
		s.await("3 Pods are available", func() bool { return s.available(3)() && len(s.list("replicasets")) == 1 })
	})
	compare(t, "rollout without surge", func(s *side) {
		s.create(s.path("deployments"), deployment(`, minReadySeconds: 2, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: "50%"}}`))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), stuck)
		s.await("a new Pod waits for a node", s.status("deployments", "web", map[string]int{"replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}))
		s.patch(s.path("deployments", "web"), `{spec: {template: {spec: {nodeSelector: null}}}}`)
		s.await("3 Pods are available again", s.available(3))
	})
	compare(t, "deleted replicaset", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.delete(s.path("replicasets", s.names("replicasets")[0]), "Background")
		s.await("3 Pods are available again", s.available(3))
		s.delete(s.path("replicasets", s.names("replicasets")[0]), "Foreground")
		s.await("3 Pods are available a third time", s.available(3))
		s.delete(s.path("replicasets", s.names("replicasets")[0]), "Orphan")
		s.await("3 Pods are adopted", s.available(3))
	})
	compare(t, "annotations and scale of a replicaset", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), "{metadata: {annotations: {example.org/note: changed, other: new}, labels: {a: b}}}")
		s.await("the annotations are copied", s.available(3))
		s.patch(s.path("replicasets", s.names("replicasets")[0]), "{spec: {replicas: 5}, metadata: {annotations: {example.org/note: wrong}}}")
		s.await("the ReplicaSet is reset", s.available(3))
	})
	compare(t, "replicaset adopts and releases", func(s *side) {
		for _, name := range []string{"a", "b", "c"} {
			s.create(s.path("pods"), strings.Replace(servicePod(name, ""), "registry.invalid/a", "registry.invalid/other", 1))
		}
		s.await("3 Pods run", func() bool {
			return s.phase("a", "Running")() && s.phase("b", "Running")() && s.phase("c", "Running")()
		})
		s.create(s.path("replicasets"), `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web}, spec: {replicas: 4, selector: {matchLabels: {app: web}}, template: `+template+`}}`)
		s.await("3 Pods are adopted and 1 is new", s.status("replicasets", "web", map[string]int{"availableReplicas": 4}))
		s.patch(s.path("pods", "a"), "{metadata: {labels: {app: other}}}")
		s.await("a Pod is released and replaced", func() bool { return len(s.list("pods")) == 5 })
		s.patch(s.path("replicasets", "web"), "{spec: {replicas: 0}}")
		s.await("only the released Pod remains", func() bool { return len(s.list("pods")) == 1 })
		s.delete(s.path("replicasets", "web"), "Background")
		s.await("the ReplicaSet is gone", func() bool { return s.gone("replicasets") })
	})
	compare(t, "pod of another controller", func(s *side) {
		owner := s.create(s.path("configmaps"), owned("owner"))
		reference := strings.Replace(reference("ConfigMap", "owner", owner), "}", ", controller: true}", 1)
		s.create(s.path("pods"), strings.Replace(servicePod("a", ""), "labels:", "ownerReferences: ["+reference+"], labels:", 1))
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are created", s.status("deployments", "web", map[string]int{"availableReplicas": 3}))
		s.delete(s.path("configmaps", "owner"), "Background")
		s.await("the other Pod is deleted", s.available(3))
	})
	compare(t, "failed pods of a deployment", func(s *side) {
		s.create(s.path("deployments"), strings.Replace(deployment(""), "spec: {containers", "spec: {nodeSelector: {no: node}, containers", 1))
		s.await("3 Pods wait for a node", s.status("deployments", "web", map[string]int{"replicas": 3}))
		s.run(s.names("pods")[0], "Failed", false, 1)
		s.await("a failed Pod is replaced and kept", func() bool { return len(s.list("pods")) == 4 })
		for _, pod := range s.names("pods")[:2] {
			if !s.phase(pod, "Failed")() {
				s.run(pod, "Running", true, 0)
			}
		}
		s.await("some Pods are ready", s.status("deployments", "web", map[string]int{"replicas": 3}))
	})
	compare(t, "invalid pod template", func(s *side) {
		s.create(s.path("deployments"), strings.Replace(deployment(""), "metadata: {labels: {app: web}}", "metadata: {labels: {app: web}, namespace: other}", 1))
		s.await("3 Pods are available", s.available(3))
	})
	compare(t, "set with a failing pod in the middle", func(s *side) {
		s.create(s.path("statefulsets"), strings.Replace(statefulSet(", podManagementPolicy: Parallel"), "spec: {containers", "spec: {nodeSelector: {no: node}, containers", 1))
		s.await("3 Pods wait for a node", s.status("statefulsets", "web", map[string]int{"replicas": 3}))
		s.run("web-0", "Running", true, 0)
		s.run("web-1", "Running", false, 0)
		s.run("web-2", "Running", true, 0)
		s.await("2 Pods are ready", s.status("statefulsets", "web", map[string]int{"readyReplicas": 2}))
		s.patch(s.path("statefulsets", "web"), image("2"))
		s.await("the update waits for the Pod in the middle", s.status("statefulsets", "web", map[string]int{"replicas": 3}))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("it is scaled down", s.status("statefulsets", "web", map[string]int{"replicas": 1}))
	})
	compare(t, "ordered set with a failing pod in the middle", func(s *side) {
		s.create(s.path("statefulsets"), strings.Replace(statefulSet(""), "spec: {containers", "spec: {nodeSelector: {no: node}, containers", 1))
		for i, pod := range []string{"web-0", "web-1", "web-2"} {
			s.await(pod+" waits for a node", s.status("statefulsets", "web", map[string]int{"replicas": i + 1}))
			s.run(pod, "Running", true, 0)
		}
		s.await("3 Pods are ready", s.status("statefulsets", "web", map[string]int{"readyReplicas": 3}))
		s.run("web-1", "Running", false, 0)
		s.await("2 Pods are ready", s.status("statefulsets", "web", map[string]int{"readyReplicas": 2}))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 4}}")
		s.await("it is not scaled up", s.status("statefulsets", "web", map[string]int{"replicas": 3}))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("it is scaled down", s.status("statefulsets", "web", map[string]int{"replicas": 1}))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 0}}")
		s.await("no Pod remains", func() bool { return s.gone("pods") })
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("a new Pod waits for a node", s.status("statefulsets", "web", map[string]int{"replicas": 1}))
		s.run("web-0", "Failed", false, 1)
		s.await("the failed Pod is replaced", s.phase("web-0", "Pending"))
	})
	compare(t, "set partition above the replicas", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(", updateStrategy: {rollingUpdate: {partition: 9}}"))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), image("2"))
		s.await("no Pod is updated", s.stateful(3, 0))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 4}}")
		s.await("a new Pod is of the old revision", s.stateful(4, 0))
		s.patch(s.path("statefulsets", "web"), `{spec: {updateStrategy: {rollingUpdate: {partition: 1}}}}`)
		s.await("3 Pods are updated", s.stateful(4, 3))
	})
	compare(t, "set pod with a finalizer", func(s *side) {
		s.create(s.path("statefulsets"), strings.Replace(statefulSet(", podManagementPolicy: Parallel"), "spec: {containers", "spec: {nodeSelector: {no: node}, containers", 1))
		s.await("3 Pods wait for a node", s.status("statefulsets", "web", map[string]int{"replicas": 3}))
		for _, pod := range []string{"web-0", "web-1", "web-2"} {
			s.run(pod, "Running", true, 0)
		}
		s.patch(s.path("pods", "web-2"), "{metadata: {finalizers: [example.org/x]}}")
		s.patch(s.path("statefulsets", "web"), image("2"))
		s.await("the update waits for the finalizer", s.phase("web-2", "Failed"))
		s.patch(s.path("pods", "web-2"), "{metadata: {finalizers: null}}")
		s.await("a Pod is updated", s.status("statefulsets", "web", map[string]int{"updatedReplicas": 1, "readyReplicas": 2}))
	})
	compare(t, "scale subresource", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.create(s.path("statefulsets"), strings.NewReplacer("app: web", "app: set").Replace(statefulSet("")))
		s.await("6 Pods are available", func() bool { return len(s.list("pods")) == 6 })
		for _, resource := range []string{"deployments", "statefulsets"} {
			if code, obj := s.send(http.MethodPatch, s.path(resource, "web", "scale"), "application/merge-patch+json", "{spec: {replicas: 1}}"); code != http.StatusOK {
				s.t.Fatalf("%d %v", code, obj["message"])
			}
		}
		s.await("2 Pods are available", func() bool { return len(s.list("pods")) == 2 })
	})
}

package controllers

import (
	"strings"
	"testing"
)

// servicePod returns a Pod of Service web. With neverReady, notReady must be called when it runs.
func servicePod(name, labels string) string {
	return strings.NewReplacer("NAME", name, "LABELS", labels).Replace(`{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: web LABELS}}, spec: {
		containers: [{name: c, image: registry.invalid/a, ports: [{name: http, containerPort: 8080}]}]}}`)
}

const neverReady = ", ready: never"

// phase reports whether a Pod has a phase.
func (s *side) phase(pod, phase string) func() bool {
	return func() bool {
		status, _ := s.get(s.path("pods", pod))["status"].(map[string]any)
		return status["phase"] == phase
	}
}

// notReady waits until a Pod with neverReady runs, and makes it not ready in the real cluster, whose nodes have no probes.
func (s *side) notReady(pod string) {
	s.t.Helper()
	if !s.settle(s.phase(pod, "Running")) {
		s.t.Errorf("%s: Pod %s does not run", s.base, pod)
	}
	s.patch(s.path("pods", pod, "status"), `{status: {conditions: [{type: Ready, status: "False"}, {type: PodScheduled, status: "True"}]}}`)
}

// endpoints reports whether there are EndpointSlices, which have n endpoints.
func (s *side) endpoints(n int) func() bool {
	return func() bool {
		found, all := 0, s.list("endpointslices")
		for _, slice := range all {
			endpoints, _ := slice["endpoints"].([]any)
			found += len(endpoints)
		}
		return found == n && len(all) > 0
	}
}

func TestServices(t *testing.T) {
	t.Parallel()
	compare(t, "service", func(s *side) {
		s.create(s.path("services"), `{apiVersion: v1, kind: Service, metadata: {name: web, labels: {a: b}}, spec: {selector: {app: web},
			ports: [{name: number, port: 80, targetPort: 8000}, {name: name, port: 81, targetPort: http}, {name: unknown, port: 82, targetPort: none}]}}`)
		s.await("there is no Pod", s.endpoints(0))
		s.create(s.path("pods"), servicePod("a", ""))
		s.create(s.path("pods"), servicePod("b", neverReady))
		s.create(s.path("pods"), strings.Replace(servicePod("waits", ""), "spec: {", "spec: {nodeSelector: {no: node}, ", 1))
		s.create(s.path("pods"), strings.Replace(servicePod("other-port", ""), "8080", "8081", 1))
		s.notReady("b")
		s.await("3 Pods run", s.endpoints(3))
		s.patch(s.path("services", "web"), "{metadata: {labels: {a: c, d: e}}, spec: {publishNotReadyAddresses: true}}")
		s.await("addresses of Pods that are not ready are published", s.endpoints(3))
		s.delete(s.path("pods", "a"), "Background")
		s.patch(s.path("pods", "other-port"), "{metadata: {labels: {app: other}}}")
		s.await("1 Pod remains", s.endpoints(1))
		s.delete(s.path("pods", "b"), "Background")
		s.await("no Pod remains", s.endpoints(0))
		s.delete(s.path("services", "web"), "Background")
		s.await("nothing remains", func() bool { return s.gone("endpointslices") && s.gone("endpoints") })
	})
	compare(t, "headless service", func(s *side) {
		s.create(s.path("services"), `{apiVersion: v1, kind: Service, metadata: {name: peers}, spec: {selector: {app: web}, clusterIP: None}}`)
		s.create(s.path("statefulsets"), statefulSet(""))
		s.await("3 Pods are available", func() bool { return s.stateful(3, 3)() && s.endpoints(3)() })
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("1 Pod is available", func() bool { return s.stateful(1, 1)() && s.endpoints(1)() })
		for _, slice := range s.list("endpointslices") {
			s.delete(s.path("endpointslices", slice["metadata"].(map[string]any)["name"].(string)), "Background")
		}
		s.delete(s.path("endpoints", "peers"), "Background")
		s.await("deleted addresses are written again", func() bool { return s.endpoints(1)() && !s.gone("endpoints") })
		s.delete(s.path("services", "peers"), "Foreground")
		s.await("no address remains", func() bool { return s.gone("services") && s.gone("endpointslices") && s.gone("endpoints") })
	})
	compare(t, "service without addresses", func(s *side) {
		s.create(s.path("services"), `{apiVersion: v1, kind: Service, metadata: {name: none}, spec: {ports: [{port: 80}]}}`)
		s.create(s.path("services"), `{apiVersion: v1, kind: Service, metadata: {name: external}, spec: {type: ExternalName, externalName: example.org, selector: {app: web}}}`)
		s.create(s.path("services"), `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, clusterIP: None, ports: [{port: 80}]}}`)
		s.create(s.path("pods"), servicePod("a", ""))
		s.await("1 Service has an address", s.endpoints(1))
	})
}

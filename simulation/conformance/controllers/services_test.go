package controllers

import (
	"fmt"
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
	if !s.settle(s.phase(pod, "Running"), "") {
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

// open sets the readiness gate of a Pod, and with it whether the Pod is ready: the nodes of the real cluster ignore gates.
func (s *side) open(pod string, open bool) {
	s.t.Helper()
	status := map[bool]string{true: "True", false: "False"}[open]
	s.patch(s.path("pods", pod, "status"), fmt.Sprintf(`{status: {conditions: [{type: example.org/open, status: %q}, {type: Ready, status: %q},
		{type: PodScheduled, status: "True"}]}}`, status, status))
}

func TestServiceChanges(t *testing.T) {
	t.Parallel()
	service := func(spec string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {` + spec + `, ports: [{port: 80}]}}`
	}
	pods := func(s *side) {
		for _, name := range []string{"a", "b"} {
			pod := strings.Replace(servicePod(name, ", name: "+name), "spec: {", "spec: {readinessGates: [{conditionType: example.org/open}], hostname: h-"+name+", subdomain: web, ", 1)
			s.create(s.path("pods"), pod)
		}
		if !s.settle(func() bool { return s.phase("a", "Running")() && s.phase("b", "Running")() }, "") {
			s.t.Fatalf("%s: the Pods do not run", s.base)
		}
		s.open("a", true)
		s.open("b", true)
	}
	compare(t, "service selector that changes", func(s *side) {
		pods(s)
		s.create(s.path("services"), service("selector: {app: web}"))
		s.await("2 Pods have addresses", s.endpoints(2))
		s.patch(s.path("services", "web"), "{spec: {selector: {name: a}}}")
		s.await("1 Pod has an address", s.endpoints(1))
		s.patch(s.path("services", "web"), "{spec: {selector: {app: null, name: none}}}")
		s.await("no Pod has an address", s.endpoints(0))
		s.patch(s.path("services", "web"), "{spec: {selector: {app: web, name: null}}}")
		s.await("2 Pods have addresses again", s.endpoints(2))
	})
	compare(t, "service with pods that change", func(s *side) {
		pods(s)
		s.create(s.path("services"), service("selector: {app: web}"))
		s.await("2 Pods have addresses", s.endpoints(2))
		s.open("a", false)
		s.await("1 Pod is not ready", s.endpoints(2))
		s.patch(s.path("services", "web"), "{spec: {publishNotReadyAddresses: true}}")
		s.await("both are published", s.endpoints(2))
		s.patch(s.path("services", "web"), "{spec: {publishNotReadyAddresses: false}}")
		s.open("a", true)
		s.await("both are ready", s.endpoints(2))
		s.patch(s.path("pods", "a", "status"), `{status: {phase: Succeeded, conditions: [{type: Ready, status: "False"}, {type: PodScheduled, status: "True"}]}}`)
		s.await("a Pod that has ended has no address", s.endpoints(1))
		s.delete(s.path("pods", "b"), "Background")
		s.await("no Pod remains", s.endpoints(0))
	})
	compare(t, "service of another type", func(s *side) {
		pods(s)
		s.create(s.path("services"), service("selector: {app: web}, type: NodePort"))
		s.await("2 Pods have addresses", s.endpoints(2))
		s.patch(s.path("services", "web"), `{spec: {type: ExternalName, externalName: example.org, clusterIP: "", clusterIPs: null}}`)
		s.await("an external name", func() bool {
			return s.get(s.path("services", "web"))["spec"].(map[string]any)["type"] == "ExternalName"
		})
		s.delete(s.path("pods", "a"), "Background")
		s.await("1 Pod remains", func() bool { return len(s.list("pods")) == 1 })
		s.patch(s.path("services", "web"), `{spec: {type: ClusterIP, externalName: null}}`)
		s.await("1 Pod has an address", s.endpoints(1))
	})
	compare(t, "headless service with hostnames", func(s *side) {
		pods(s)
		s.create(s.path("services"), service("selector: {app: web}, clusterIP: None"))
		s.await("2 Pods have addresses with names", s.endpoints(2))
		s.open("a", false)
		s.await("1 is not ready", s.endpoints(2))
	})
	compare(t, "service with ports that change", func(s *side) {
		pods(s)
		s.create(s.path("services"), service("selector: {app: web}"))
		s.await("2 Pods have addresses", s.endpoints(2))
		s.patch(s.path("services", "web"), "{spec: {ports: [{name: http, port: 80, targetPort: http, appProtocol: http}, {name: dns, port: 53, protocol: UDP}]}}")
		s.await("the ports follow", func() bool { return s.endpoints(2)() && strings.Contains(s.state(), "dns") })
		s.patch(s.path("services", "web"), "{spec: {ports: [{name: none, port: 80, targetPort: none}]}}")
		s.await("no port is found", func() bool { return !strings.Contains(s.state(), "dns") })
	})
}

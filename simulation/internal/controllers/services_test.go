package controllers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

const (
	services       = "v1/services"
	endpointSlices = "discovery.k8s.io/v1/endpointslices"
	endpointsPath  = "v1/endpoints"
)

// service returns the manifest of Service web. spec is added to its spec.
func service(spec string) string {
	return `{metadata: {name: web, labels: {a: b}}, spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]` + spec + `}}`
}

func (w *world) slices() []discoveryv1.EndpointSlice {
	w.t.Helper()
	_, list := w.send("GET", path(endpointSlices, "one/"), "", nil)
	text, _ := json.Marshal(list)
	var all discoveryv1.EndpointSliceList
	if err := json.Unmarshal(text, &all); err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// endpoints returns the EndpointSlices: ports, and for each endpoint the name of the Pod and its true conditions.
func (w *world) endpoints() string {
	w.t.Helper()
	var texts []string
	for _, slice := range w.slices() {
		text := string(slice.AddressType)
		for _, port := range slice.Ports {
			text += fmt.Sprintf(" %s/%d", *port.Name, *port.Port)
		}
		for _, e := range slice.Endpoints {
			text += " " + e.TargetRef.Name + "="
			if *e.Conditions.Ready {
				text += "r"
			}
			if *e.Conditions.Serving {
				text += "s"
			}
			if *e.Conditions.Terminating {
				text += "t"
			}
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// legacyEndpoints returns the number of addresses and of addresses that are not ready in Endpoints web.
func (w *world) legacyEndpoints() string {
	w.t.Helper()
	var texts []string
	subsets, _ := w.get(endpointsPath, "one/web")["subsets"].([]any)
	for _, s := range subsets {
		subset := s.(map[string]any)
		count := func(field string) int {
			list, _ := subset[field].([]any)
			return len(list)
		}
		texts = append(texts, fmt.Sprintf("addresses=%d notReady=%d ports=%d", count("addresses"), count("notReadyAddresses"), count("ports")))
	}
	return strings.Join(texts, "; ")
}

func pod(name, spec string) string {
	return `{metadata: {name: ` + name + `, labels: {app: web}}, spec: {containers: [{name: c, image: a` + spec + `}]}}`
}

func TestServiceAddresses(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(w *world){
		"Pods become ready and end": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 5 * time.Second} }
			w.apply(services, service(""))
			w.run(0)
			w.want("no Pods", w.endpoints(), "IPv4")
			w.want("no Pods", w.legacyEndpoints(), "")
			before := w.slices()[0]
			w.apply(podsPath, pod("a", ""))
			w.apply(podsPath, pod("b", ""))
			w.apply(podsPath, strings.Replace(pod("other", ""), "web", "other", 1))
			w.run(0)
			w.want("not ready", w.endpoints(), "IPv4 http/8080 a= b=")
			w.want("not ready", w.legacyEndpoints(), "addresses=0 notReady=2 ports=1")
			w.run(time.Second)
			w.want("ready", w.endpoints(), "IPv4 http/8080 a=rs b=rs")
			w.want("ready", w.legacyEndpoints(), "addresses=2 notReady=0 ports=1")
			after := w.slices()[0]
			w.want("slice", fmt.Sprintln(after.Name == before.Name, after.Labels, w.owners(endpointSlices, "one/"+after.Name)),
				"true map[a:b endpointslice.kubernetes.io/managed-by:endpointslice-controller.k8s.io kubernetes.io/service-name:web] web\n")
			endpoint, running := after.Endpoints[0], into[corev1.Pod](w, podsPath, "one/a")
			w.want("endpoint", endpoint.Addresses[0]+" "+*endpoint.NodeName+" "+string(endpoint.TargetRef.UID),
				running.Status.PodIP+" "+running.Spec.NodeName+" "+string(running.UID))
			w.delete(podsPath, "one/a", "")
			w.run(time.Second)
			w.want("deleted", w.endpoints(), "IPv4 http/8080 a=st b=rs")
			w.want("deleted", w.legacyEndpoints(), "addresses=1 notReady=0 ports=1")
			w.patch(podsPath, "one/b", `{metadata: {labels: {app: other}}}`)
			w.run(time.Minute)
			w.want("no Pods", w.endpoints(), "IPv4")
			writes := len(w.requests)
			w.run(time.Hour)
			w.want("writes of an idle Service", fmt.Sprint(w.requests[writes:]), "[]")
			w.delete(services, "one/web", "")
			w.run(time.Minute)
			w.expect(endpointSlices, "")
			w.expect(endpointsPath, "")
		},
		"ports by name": func(w *world) {
			w.apply(services, `{metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: a, port: 80, targetPort: http}, {name: b, port: 81, targetPort: admin},
				{name: c, port: 82}, {name: d, port: 83}]}}`)
			w.apply(podsPath, pod("one", ", ports: [{name: http, containerPort: 8080}, {name: admin, containerPort: 9000}]"))
			w.apply(podsPath, pod("two", ", ports: [{name: http, containerPort: 8081}, {name: admin, containerPort: 9000}]"))
			w.apply(podsPath, pod("without", ""))
			w.run(time.Minute)
			w.want("slices", w.endpoints(), "IPv4 a/8080 b/9000 c/82 d/83 one=rs; IPv4 a/8081 b/9000 c/82 d/83 two=rs; IPv4 c/82 d/83 without=rs")
			w.want("Endpoints", w.legacyEndpoints(), "addresses=1 notReady=0 ports=1; addresses=1 notReady=0 ports=1; addresses=2 notReady=0 ports=1; addresses=3 notReady=0 ports=2")
		},
		"headless, with Pods that are not ready": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{NeverReady: true} }
			w.apply(statefulSets, strings.Replace(db(", podManagementPolicy: Parallel"), "peers", "web", 1))
			w.apply(services, `{metadata: {name: web}, spec: {selector: {app: db}, clusterIP: None, publishNotReadyAddresses: true}}`)
			w.run(time.Minute)
			w.want("slices", w.endpoints(), "IPv4 db-0=r db-1=r db-2=r")
			w.want("Endpoints", w.legacyEndpoints(), "addresses=3 notReady=0 ports=0")
			slice := w.slices()[0]
			_, headless := slice.Labels["service.kubernetes.io/headless"]
			w.want("names", fmt.Sprint(*slice.Endpoints[0].Hostname, " ", headless), "db-0 true")
		},
		"without a selector": func(w *world) {
			w.apply(services, `{metadata: {name: web}, spec: {ports: [{port: 80}]}}`)
			w.apply(services, `{metadata: {name: external}, spec: {type: ExternalName, externalName: example.org, selector: {app: web}}}`)
			w.apply(endpointsPath, `{metadata: {name: alone}}`)
			w.apply(endpointSlices, `{metadata: {name: own, labels: {kubernetes.io/service-name: alone}}, addressType: IPv4, endpoints: []}`)
			w.run(time.Minute)
			w.expect(endpointSlices, "own")
			w.expect(endpointsPath, "alone")
		},
		"deleted by a user": func(w *world) {
			w.apply(services, service(""))
			w.apply(podsPath, pod("a", ""))
			w.run(time.Minute)
			w.delete(endpointSlices, "one/"+w.slices()[0].Name, "")
			w.delete(endpointsPath, "one/web", "")
			w.run(time.Minute)
			w.want("slices", w.endpoints(), "IPv4 http/8080 a=rs")
			w.want("Endpoints", w.legacyEndpoints(), "addresses=1 notReady=0 ports=1")
			w.delete(services, "one/web", "Foreground")
			w.run(time.Minute)
			w.expect(endpointSlices, "")
			w.expect(endpointsPath, "")
		},
		"slices of another Service, and a Service that is being deleted": func(w *world) {
			w.apply(endpointSlices, `{metadata: {name: foreign, labels: {kubernetes.io/service-name: web,
				endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}, addressType: IPv4, endpoints: []}`)
			w.apply(services, service(""))
			w.run(time.Minute)
			slice := w.slices()[0].Name
			w.want("slices", fmt.Sprint(len(w.slices()), slice == "foreign"), "1 false")
			w.patch(services, "one/web", "{metadata: {finalizers: [example.org/x]}}")
			w.delete(services, "one/web", "")
			w.delete(endpointSlices, "one/"+slice, "")
			w.run(time.Minute)
			w.expect(endpointSlices, "")
		},
		"many Pods": func(w *world) {
			w.apply(services, service(""))
			w.apply(deployments, strings.Replace(web("a:1", ""), "replicas: 3", "replicas: 120", 1))
			w.run(time.Minute)
			var sizes []int
			for _, slice := range w.slices() {
				sizes = append(sizes, len(slice.Endpoints))
			}
			slices.Sort(sizes)
			w.want("sizes", fmt.Sprint(sizes), "[20 100]")
			w.want("Endpoints", w.legacyEndpoints(), "addresses=120 notReady=0 ports=1")
			w.patch(deployments, "one/web", "{spec: {replicas: 100}}")
			w.run(time.Minute)
			w.want("number of slices", fmt.Sprint(len(w.slices())), "1")
		},
		"namespace": func(w *world) {
			w.apply(services, service(""))
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.delete("v1/namespaces", "one", "")
			w.run(time.Minute)
			if w.get("v1/namespaces", "one") != nil {
				w.t.Errorf("the namespace exists; writes:\n%s", strings.Join(w.requests, "\n"))
			}
		},
	})
}

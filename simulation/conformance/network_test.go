package conformance

import (
	"fmt"
	"strings"

	apibuiltin "github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// networkKinds returns the kind Service.
func networkKinds() []*kind {
	return []*kind{{
		resource: "services", name: "Service", apiVersion: "v1", weight: 2, memory: builtin(apibuiltin.Services), createOnUpdate: true,
		minimal:        `"spec":{"ports":[{"port":80}]}`,
		fieldSelectors: []string{"spec.type=NodePort", "spec.clusterIP=None", "spec.type!=ClusterIP", "spec.ports=80"},
		// No updates of the status: they create a missing Service without allocating its addresses.
		subresources: []subresource{{name: "status", operations: []string{"get", "patch"}, percent: 25}},
		fields: []field{
			{name: "spec", weight: 3, required: true, value: serviceSpec},
			{name: "status", value: serviceStatus},
		},
		patch: func(g *generator, media string) string {
			if g.IntN(4) == 0 && media != "json-patch" {
				return `{"status":` + serviceStatus(g) + `}`
			}
			if media == "json-patch" {
				return pick(g, `[{"op":"replace","path":"/spec/ports/0/port","value":81}]`, `[{"op":"add","path":"/spec/type","value":"NodePort"}]`,
					`[{"op":"remove","path":"/spec/clusterIP"}]`, `[{"op":"remove","path":"/spec/selector"}]`, `[{"op":"remove","path":"/spec/ports"}]`)
			}
			return pick(g, `{"spec":{"type":"NodePort"}}`, `{"spec":{"type":"LoadBalancer"}}`, `{"spec":{"type":"ClusterIP"}}`,
				`{"spec":{"type":"ExternalName","externalName":"web.example.com"}}`, `{"spec":{"selector":{"app":"`+g.value()+`"}}}`,
				`{"spec":{"ports":[{"port":80,"name":"a"},{"port":81,"name":"b"}]}}`, `{"spec":{"ports":[{"port":80,"protocol":"UDP"}]}}`,
				`{"spec":{"clusterIP":null,"clusterIPs":null}}`, `{"spec":{"externalTrafficPolicy":"Local"}}`, `{"spec":{"sessionAffinity":"ClientIP"}}`)
		},
	}}
}

func serviceStatus(g *generator) string {
	return pick(g, `{}`, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`,
		`{"loadBalancer":{"ingress":[{"ip":"192.0.2.1","ipMode":"Proxy"},{"hostname":"lb.example.com"}]}}`,
		`{"loadBalancer":{"ingress":[{"ip":"1.2"}]}}`, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1","ipMode":"Other"},{"hostname":"192.0.2.1"}]}}`,
		`{"loadBalancer":{"ingress":[{"hostname":"Not A Name","ipMode":"VIP"}]}}`,
		`{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`)
}

func serviceSpec(g *generator) string {
	var fields []string
	add := func(percent int, name string, all ...string) {
		if g.IntN(100) < percent {
			fields = append(fields, `"`+name+`":`+pick(g, all...))
		}
	}
	simple := `[{"port":80}]`
	static := fmt.Sprintf("10.96.0.%d", 2+g.IntN(250)) // servers choose later addresses and ports
	nodePort := fmt.Sprint(30000 + g.IntN(86))
	add(92, "ports", simple, simple, `[{"port":80,"targetPort":"http"}]`, `[{"name":"a","port":80},{"name":"b","port":81,"targetPort":8081}]`,
		`[{"name":"a","port":80},{"name":"b","port":80,"protocol":"UDP"}]`, `[{"port":80,"nodePort":`+nodePort+`}]`,
		`[{"name":"a","port":80,"nodePort":`+nodePort+`},{"name":"b","port":80,"protocol":"UDP"}]`,
		pick(g, `[{"name":"a","port":80},{"name":"a","port":80}]`, `[{"port":80},{"port":81}]`, `[{"port":0}]`, `[{"port":70000,"protocol":"X"}]`,
			`[{"port":80,"targetPort":"Not a name"}]`, `[{"port":80,"targetPort":99999}]`, `[{"name":"Not_A_Name","port":80,"appProtocol":"a b"}]`,
			`[{"port":80,"nodePort":20}]`, `[{"name":"a","port":80,"nodePort":30001},{"name":"b","port":81,"nodePort":30001}]`, `[]`))
	add(40, "type", `"ClusterIP"`, `"NodePort"`, `"NodePort"`, `"LoadBalancer"`, `"LoadBalancer"`, `"ExternalName"`, `"Other"`)
	add(50, "selector", `{"app":"web"}`, `{"app":"`+g.value()+`"}`, `{}`, `{"not a label":"x"}`)
	switch g.IntN(12) {
	case 0:
		fields = append(fields, `"clusterIP":"None"`)
	case 1:
		fields = append(fields, `"clusterIP":"`+static+`"`)
	case 2:
		fields = append(fields, `"clusterIP":"`+static+`","clusterIPs":["`+static+`"]`)
	case 3:
		fields = append(fields, pick(g, `"clusterIP":"10.0.0.1"`, `"clusterIP":"x"`, `"clusterIP":"010.96.0.9"`, `"clusterIPs":["10.96.0.9"]`, `"clusterIP":"10.96.0.1"`,
			`"clusterIP":"None","clusterIPs":["None","10.96.0.9"]`, `"clusterIP":"10.96.0.9","clusterIPs":["10.96.0.8"]`, `"clusterIP":"fd00::1"`,
			`"clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9","10.96.0.8"]`, `"clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9","fd00::1"]`, `"clusterIP":""`))
	}
	add(12, "ipFamilyPolicy", `"SingleStack"`, `"PreferDualStack"`, `"RequireDualStack"`, `"Other"`)
	add(8, "ipFamilies", `["IPv4"]`, `["IPv6"]`, `["IPv4","IPv6"]`, `["IPv4","IPv4"]`, `["Other"]`)
	add(12, "sessionAffinity", `"ClientIP"`, `"None"`, `"Other"`)
	add(6, "sessionAffinityConfig", `{"clientIP":{"timeoutSeconds":5}}`, `{"clientIP":{"timeoutSeconds":0}}`, `{}`)
	add(10, "externalName", `"web.example.com"`, `"web.example.com."`, `"Not A Name"`)
	add(12, "externalTrafficPolicy", `"Local"`, `"Local"`, `"Cluster"`, `"Other"`)
	add(6, "internalTrafficPolicy", `"Local"`, `"Other"`)
	add(6, "externalIPs", `["192.0.2.1"]`, `["127.0.0.1"]`, `["0.0.0.0"]`, `["169.254.1.1"]`, `["x"]`, `["224.0.0.1"]`)
	add(4, "loadBalancerSourceRanges", `["192.0.2.0/24"]`, `[" 192.0.2.0/24 "]`, `["192.0.2.1/24"]`, `["x"]`)
	add(4, "allocateLoadBalancerNodePorts", `false`, `true`)
	add(4, "loadBalancerClass", `"example.com/lb"`, `"not valid"`)
	add(4, "healthCheckNodePort", nodePort, `20`)
	add(4, "trafficDistribution", `"PreferClose"`, `"PreferSameZone"`, `"Other"`)
	add(3, "loadBalancerIP", `"192.0.2.1"`, `"x"`)
	add(3, "publishNotReadyAddresses", `true`)
	return "{" + strings.Join(fields, ",") + "}"
}

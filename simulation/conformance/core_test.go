package conformance

import "github.com/evenkeel-go/evenkeel/internal/apiserver"

// coreKinds returns the kinds of the core group that only store data.
func coreKinds() []*kind {
	immutable := field{name: "immutable", value: values(`true`, `false`, `null`, `"yes"`)}
	return []*kind{
		{
			resource: "configmaps", name: "ConfigMap", apiVersion: "v1", weight: 2, memory: builtin(apiserver.ConfigMaps),
			mapField: "data", fields: []field{
				{name: "data", weight: 3, value: func(g *generator) string {
					changing := `{"k":"` + g.value() + `"}`
					return pick(g, changing, changing, changing, `{"k":"1","l":"2"}`, `{"k":"1","l":"2"}`, `{}`, `{}`, `null`, `{"not a key":"x"}`, `{"k":1}`)
				}},
				{name: "binaryData", value: values(`{"b":"dmFsdWU="}`, `{"k":"dmFsdWU="}`, `{}`, `null`, `{"b":"not base64!"}`)},
				immutable,
			},
		},
		{
			resource: "secrets", name: "Secret", apiVersion: "v1", memory: builtin(apiserver.Secrets),
			mapField: "stringData", fieldSelectors: []string{"type=Opaque"}, fields: []field{
				{name: "data", value: values(`{"k":"dmFsdWU="}`, `{"k":"dmFsdWU=","l":"dmFsdWU="}`, `{"k":null}`, `{}`, `null`, `{"k":"not base64!"}`)},
				{name: "stringData", value: func(g *generator) string {
					return pick(g, `{"k":"`+g.value()+`"}`, `{"l":"`+g.value()+`"}`, `{"username":"u"}`, `{"tls.crt":"x","tls.key":"y"}`,
						`{".dockercfg":"{}"}`, `{"not a key":"x"}`, `{}`)
				}},
				{name: "type", value: values(`"Opaque"`, `"Opaque"`, `"Opaque"`, `""`, `"example.com/own"`, `"kubernetes.io/tls"`, `"kubernetes.io/basic-auth"`,
					`"kubernetes.io/ssh-auth"`, `"kubernetes.io/dockercfg"`, `"kubernetes.io/dockerconfigjson"`, `"kubernetes.io/service-account-token"`)},
				immutable,
			},
		},
		{
			resource: "namespaces", name: "Namespace", apiVersion: "v1", memory: builtin(apiserver.Namespaces), clusterScoped: true,
			noDeleteCollection: true, randomOrder: true,
			fieldSelectors: []string{"status.phase=Active", "status.phase=Terminating", "name=$ns-x"},
			subresources: []subresource{
				{name: "status", operations: []string{"get", "update", "apply"}, percent: 18},
				{name: "finalize", operations: []string{"update"}, percent: 18},
			},
			fields: []field{
				{name: "spec", value: values(`{}`, `{"finalizers":["kubernetes"]}`, `{"finalizers":["example.com/x"]}`, `{"finalizers":["plain"]}`)},
				{name: "status", value: values(`{"phase":"Active"}`, `{"phase":"Terminating"}`, `{}`)},
			},
		},
	}
}

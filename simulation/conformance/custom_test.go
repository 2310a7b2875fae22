package conformance

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// group is the group of the custom kinds.
const group = "conformance.example.com"

// customKinds returns custom kinds without a schema: all fields are preserved.
func customKinds() []*kind {
	content := func(g *generator) string {
		return pick(g, `{"size":`+pick(g, "1", "2", "3.5")+`}`, `{"size":1,"note":"`+g.value()+`"}`, `{}`, `{"list":[1,"x",{"y":null}]}`, `"text"`, `null`,
			`[]`, `{"none":null}`)
	}
	status := subresource{name: "status", operations: []string{"get", "update", "patch", "apply"}, percent: 30}
	fields := []field{{name: "spec", weight: 2, value: content}, {name: "status", value: content}, {name: "extra", value: content}}
	return []*kind{
		{
			resource: "widgets", name: "Widget", apiVersion: group + "/v1", weight: 2,
			definition: schemalessDefinition("Widget", "widget", "Namespaced", `{"status":{}}`),
			memory: func() []*apiserver.Kind {
				k := apiserver.Custom(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}, "widgets")
				k.Status = true
				return []*apiserver.Kind{k}
			},
			mapField: "spec", fields: fields, subresources: []subresource{status},
		},
		{
			resource: "plants", name: "Plant", apiVersion: group + "/v1", clusterScoped: true,
			definition: schemalessDefinition("Plant", "plant", "Cluster", `{}`),
			memory: func() []*apiserver.Kind {
				k := apiserver.Custom(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Plant"}, "plants")
				k.ClusterScoped = true
				return []*apiserver.Kind{k}
			},
			mapField: "spec", fields: fields,
		},
	}
}

// schemalessDefinition returns a CustomResourceDefinition whose schema preserves all fields.
func schemalessDefinition(name, singular, scope, subresources string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"` + singular + `s.` + group + `"},
"spec":{"group":"` + group + `","scope":"` + scope + `",
"names":{"kind":"` + name + `","listKind":"` + name + `List","plural":"` + singular + `s","singular":"` + singular + `"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":` + subresources + `,
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
}

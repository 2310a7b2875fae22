package conformance

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestProtocol compares requests that random operations do not make, or rarely.
func TestProtocol(t *testing.T) {
	r := &runner{
		real: realServer(t), memory: memoryServer(t, 1), prefix: fmt.Sprintf("p%d", time.Now().Unix()),
		coverage: map[count]int{}, forms: map[string]int{}, masked: map[string]int{},
	}
	g := newGenerator(kinds(), 1, firstDirected)
	trees := &kind{
		resource: "trees", name: "Tree", apiVersion: group + "/v1", clusterScoped: true,
		definition: schemalessDefinition("Tree", "tree", "Cluster", `{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`),
	}
	for _, s := range []*server{r.real, r.memory} {
		s.define(t, trees)
	}
	at := func(o operation, subresource, media string) operation {
		o.subresource = subresource
		if media != "" {
			o.header["Content-Type"] = media
		}
		return o
	}
	const merge = "application/merge-patch+json"
	for name, steps := range map[string]func(d *director) []operation{
		"scale of a cluster-scoped custom resource": func(d *director) []operation {
			scale := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"` + d.name + `"},"spec":{"replicas":3}}`
			return []operation{
				d.operation(http.MethodPost, "", d.object(`},"spec":{"replicas":1`)),
				at(d.operation(http.MethodGet, d.name, ""), "scale", ""),
				at(d.operation(http.MethodPatch, d.name, `{"spec":{"replicas":2}}`), "scale", merge),
				at(d.operation(http.MethodPut, d.name, scale), "scale", ""),
				d.operation(http.MethodGet, d.name, ""),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ops := steps(newDirector(g, trees))
			if difference := r.run(t, ops); difference != "" {
				t.Errorf("%s%s", list(ops), difference)
			}
		})
	}
}

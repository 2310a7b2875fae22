package conformance

import (
	"net/http"
	"testing"
)

// TestProtocol compares requests that random operations do not make, or rarely, with those to a simulated cluster.
func TestProtocol(t *testing.T) {
	r := newRunner(t, simulated(t, nil))
	trees := &kind{
		resource: "trees", name: "Tree", apiVersion: group + "/v1", clusterScoped: true,
		definition: schemalessDefinition("Tree", "tree", "Cluster", `{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`),
	}
	csiNodes := &kind{resource: "csinodes", name: "CSINode", apiVersion: "storage.k8s.io/v1", clusterScoped: true, minimal: `"spec":{"drivers":[]}`}
	for _, k := range []*kind{trees, kindOf("widgets"), kindOf("gadgets")} {
		r.real.define(t, k)
		r.memory.define(t, k)
	}
	g := newGenerator(kinds(), 1, firstDirected)
	const merge = "application/merge-patch+json"
	with := func(o operation, change func(o *operation)) operation {
		change(&o)
		return o
	}
	scale := func(o operation) operation { o.subresource = "scale"; return o }
	get := func(d *director, accept string) operation {
		return with(d.operation(http.MethodGet, d.name, ""), func(o *operation) { o.header["Accept"] = accept })
	}
	list := func(d *director, accept string) operation {
		return with(d.list(http.MethodGet, ""), func(o *operation) { o.header["Accept"] = accept })
	}
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"
	const partials = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"
	owners := func(d *director, refs ...string) (ops []operation) {
		for _, ref := range refs {
			ops = append(ops, d.operation(http.MethodPost, "", d.object(`,"ownerReferences":[`+ref+`]`)))
		}
		return append(ops, d.operation(http.MethodPost, "", d.object(``)), d.patch(merge, `{"metadata":{"ownerReferences":[`+refs[0]+`]}}`))
	}
	for name, steps := range map[string]struct {
		kinds []*kind
		steps func(d *director) []operation
	}{
		"scale of a cluster-scoped custom resource": {[]*kind{trees}, func(d *director) []operation {
			return []operation{
				d.operation(http.MethodPost, "", d.object(`},"spec":{"replicas":1`)),
				scale(d.operation(http.MethodGet, d.name, "")),
				scale(d.patch(merge, `{"spec":{"replicas":2}}`)),
				scale(d.operation(http.MethodPut, d.name, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"`+d.name+`"},"spec":{"replicas":3}}`)),
				d.operation(http.MethodGet, d.name, ""),
			}
		}},
		"accepted media types": {[]*kind{kindOf("leases"), kindOf("widgets")}, func(d *director) []operation {
			ops := d.existing()
			for _, accept := range []string{"application/*", "application/*;q=0.5, text/plain", "*/*", "application/*, application/yaml", "text/*"} {
				ops = append(ops, get(d, accept), list(d, accept))
			}
			return ops
		}},
		"metadata in v1beta1": {[]*kind{kindOf("leases"), kindOf("widgets")}, func(d *director) []operation {
			watch := with(d.watch("resourceVersion=$first"), func(o *operation) { o.header["Accept"] = partial })
			return append(d.existing(), get(d, partial), list(d, partials), list(d, partials+",application/json"), watch)
		}},
		"owner references": {[]*kind{kindOf("leases"), kindOf("configmaps"), kindOf("widgets")}, func(d *director) []operation {
			return owners(d, `{}`, `{"apiVersion":"v1","kind":"Secret","name":"a"}`, `{"apiVersion":"","kind":"Secret","name":"a","uid":"u"}`,
				`{"apiVersion":"v1","kind":"","name":"","uid":"u"}`, `{"apiVersion":"a/b/c","kind":"Secret","name":"a","uid":"u"}`,
				`{"apiVersion":"/v1","kind":"Secret","name":"a","uid":"u"}`, `{"apiVersion":"v1","kind":"Event","name":"a","uid":"u"}`,
				`{"apiVersion":"v1","kind":"Secret","name":"a","uid":"u","x":1}`, `"text"`, `{"apiVersion":1}`, `null`)
		}},
		"patch of the version and the kind": {[]*kind{kindOf("gadgets")}, func(d *director) []operation {
			ops := d.existing()
			for _, fields := range []string{
				`"apiVersion":"conformance.evenkeel.dev/v2"`, `"apiVersion":"conformance.evenkeel.dev/v9"`, `"apiVersion":"example.com/v1"`, `"apiVersion":null`,
				`"apiVersion":""`, `"apiVersion":"a/b/c"`, `"kind":"Other"`, `"kind":null`, `"apiVersion":"v1","kind":"Secret"`,
			} {
				ops = append(ops, d.patch(merge, `{`+fields+`,"metadata":{"labels":{"app":"`+d.value()+`"}}}`))
			}
			ops = append(ops, d.patch("application/json-patch+json", `[{"op":"replace","path":"/apiVersion","value":"conformance.evenkeel.dev/v2"}]`))
			for i := range ops[1:] {
				ops[i+1].query = "fieldValidation=Ignore" // the warnings of a schema of another version
			}
			return ops
		}},
		"empty segments of a path": {[]*kind{kindOf("configmaps"), kindOf("widgets")}, func(d *director) []operation {
			ops := d.existing()
			for _, name := range []string{"/" + d.name, d.name + "/", "/" + d.name + "/"} {
				ops = append(ops, d.operation(http.MethodGet, name, ""), d.operation(http.MethodDelete, name, ""))
			}
			for _, namespace := range []string{"", "/$ns", "$ns/"} {
				in := func(o *operation) { o.namespace = namespace }
				ops = append(ops, with(d.list(http.MethodGet, ""), in), with(d.operation(http.MethodGet, d.name, ""), in))
			}
			return ops
		}},
		"kinds without a status": {[]*kind{csiNodes}, func(d *director) []operation {
			status := func(o *operation) { o.subresource = "status" }
			return []operation{with(d.operation(http.MethodGet, d.name, ""), status), with(d.patch(merge, `{}`), status)}
		}},
	} {
		for _, k := range steps.kinds {
			t.Run(name+"/"+k.resource, func(t *testing.T) {
				d := newDirector(g, k)
				sides := r.begin(t)
				for i, o := range steps.steps(d) {
					if difference := r.runIn(t, sides, []operation{o}); difference != "" {
						t.Errorf("step %d: %s", i, difference)
					}
				}
			})
		}
	}
}

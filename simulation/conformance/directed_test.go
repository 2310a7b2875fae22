package conformance

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDirected checks that the directed operations of each minimum end as they should, so that they can fill it up.
func TestDirected(t *testing.T) {
	r := newRunner(t, memoryServer(t, 1))
	chosen := chosenKinds(t)
	if os.Getenv("CONFORMANCE_KINDS") == "" {
		chosen = []*kind{kindOf("leases"), kindOf("plants")} // a make conformance of all kinds needs most of the others
	}
	for _, k := range chosen {
		t.Run(k.resource, func(t *testing.T) {
			for i, f := range forms() {
				if f.directed == nil || k.definition != "" || k.alone != nil {
					continue
				}
				ops := f.directed(newDirector(newGenerator(chosen, 1, firstDirectedForm+uint64(i)), k))
				clear(r.forms)
				if difference := r.run(t, ops); difference != "" {
					t.Errorf("%s:\n%s%s", f.name, list(ops), difference)
				}
				if r.forms[f.name] == 0 {
					t.Errorf("%s is none of %v:\n%s", f.name, r.forms, list(ops))
				}
			}
			for i, m := range minimumsOf(k) {
				if m.directed == nil || m.code == http.StatusGatewayTimeout {
					continue
				}
				ops := directed(newGenerator(chosen, 1, firstDirected+uint64(i)), []shortfall{{minimum: m, kind: k, min: 1}})
				clear(r.coverage)
				if difference := r.run(t, ops); difference != "" {
					t.Errorf("%s %d:\n%s%s", m.verb, m.code, list(ops), difference)
				}
				if r.coverage[count{k.resource, m.verb, m.code}] == 0 {
					t.Errorf("%s %d is none of %v:\n%s", m.verb, m.code, r.coverage, list(ops))
				}
			}
		})
	}
}

// director makes operations with a known result, on an object that only they use.
type director struct {
	*generator
	kind *kind
	name string
}

// directed returns sequences that fill up the shortfalls, all on their own objects of one namespace.
func directed(g *generator, shortfalls []shortfall) []operation {
	var ops []operation
	for _, s := range shortfalls {
		for range s.min - s.have {
			if s.directed == nil {
				break
			}
			ops = append(ops, s.directed(newDirector(g, s.kind))...)
		}
	}
	return ops
}

func newDirector(g *generator, k *kind) *director {
	g.index++
	d := &director{generator: g, kind: k, name: fmt.Sprintf("d%d", g.index)}
	if k.clusterScoped {
		d.name = "$ns-" + d.name
	}
	return d
}

func (d *director) operation(method, name, body string) operation {
	o := operation{
		kind: d.kind, method: method, apiVersion: d.kind.apiVersion, resource: d.kind.resource, namespace: "$ns",
		name: name, body: body, header: map[string]string{},
	}
	if d.kind.clusterScoped {
		o.namespace = ""
	}
	return o
}

// object returns the smallest valid object, with more metadata.
func (d *director) object(metadata string) string {
	body := `{` + d.kind.typeMeta(d.kind.apiVersion) + `"metadata":{"name":"` + d.name + `","labels":{"sequence":"$ns"}` + metadata + `}}`
	if d.kind.minimal != "" {
		body = insert(body, ","+d.kind.minimal)
	}
	return body
}

// existing creates the object.
func (d *director) existing() []operation {
	return []operation{d.operation(http.MethodPost, "", d.object(""))}
}

func (d *director) withFinalizer() []operation {
	return []operation{d.operation(http.MethodPost, "", d.object(`,"finalizers":["example.com/a"]`))}
}

// changed creates the object and changes it, so that it has two versions.
func (d *director) changed() []operation {
	return append(d.existing(),
		d.operation(http.MethodGet, d.name, ""), // the version of the created object
		d.patch(d.mergePatch(), `{"metadata":{"labels":{"app":"`+d.value()+`"}}}`))
}

func (d *director) mergePatch() string {
	if d.kind.definition == "" && d.IntN(2) == 0 {
		return "application/strategic-merge-patch+json"
	}
	return "application/merge-patch+json"
}

func (d *director) patch(media, body string) operation {
	o := d.operation(http.MethodPatch, d.name, body)
	o.header["Content-Type"] = media
	return o
}

func (d *director) apply(manager, body string) operation {
	o := d.patch("application/apply-patch+yaml", body)
	if manager != "" {
		o.query = "fieldManager=" + manager
	}
	return o
}

func (d *director) read(method, name, query string) operation {
	o := d.operation(method, name, "")
	o.query = query
	return o
}

// list lists or deletes the objects of the sequence.
func (d *director) list(method, query string) operation {
	return d.read(method, "", strings.TrimSuffix("labelSelector=sequence%3D$ns&"+query, "&"))
}

func (d *director) watch(query string) operation {
	o := d.list(http.MethodGet, "watch=true&"+query)
	o.watch = true
	return o
}

// eviction evicts the Pod.
func (d *director) eviction(options string) operation {
	o := d.operation(http.MethodPost, d.name, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+d.name+`"}`+options+`}`)
	o.subresource = "eviction"
	return o
}

// binding binds the Pod to an object of a kind.
func (d *director) binding(kind string) operation {
	o := d.operation(http.MethodPost, d.name, `{"metadata":{"name":"`+d.name+`"},"target":{"kind":"`+kind+`","name":"n1"}}`)
	o.subresource = "binding"
	return o
}

// disrupted creates a ready Pod, and a PodDisruptionBudget with a status that selects only this Pod.
func (d *director) disrupted(status string) []operation {
	budgets := &director{generator: d.generator, kind: kindOf("poddisruptionbudgets"), name: d.name}
	ready := d.status(`{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`)
	return slices.Concat(d.existing(), []operation{d.patch(d.mergePatch(), `{"metadata":{"labels":{"app":"`+d.name+`"}}}`), ready},
		budgets.existing(), budgets.selecting(d), []operation{budgets.status(status)})
}

// selecting makes a PodDisruptionBudget select a Pod.
func (d *director) selecting(pod *director) []operation {
	return []operation{d.patch("application/merge-patch+json", `{"spec":{"selector":{"matchLabels":{"app":"`+pod.name+`"}}}}`)}
}

// postInTerminatingNamespace sends a request to a subresource in a namespace that is being deleted.
func (d *director) postInTerminatingNamespace(o operation) []operation {
	ops := d.inTerminatingNamespace()
	last := len(ops) - 1
	o.namespace = ops[last].namespace
	ops[last] = o
	return ops
}

// inTerminatingNamespace creates the object in a namespace that is being deleted.
func (d *director) inTerminatingNamespace() []operation {
	namespaces := &director{generator: d.generator, kind: kindOf("namespaces"), name: "$ns-" + d.name}
	o := d.operation(http.MethodPost, "", d.object(""))
	o.namespace = namespaces.name
	return append(namespaces.existing(), namespaces.operation(http.MethodDelete, namespaces.name, ""), o)
}

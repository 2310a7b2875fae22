package conformance

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// definitionsResource is the resource of definitions.
const definitionsResource = "customresourcedefinitions"

// definitionsVersion is the version of definitions.
const definitionsVersion = "apiextensions.k8s.io/v1"

// definitionNames are the definitions of a sequence: their group contains its namespace.
func definitionNames() []string { return []string{"foos.$ns.example.com", "bars.$ns.example.com"} }

// definitionKinds returns the kind CustomResourceDefinition, whose operations change what the servers serve. The others are on
// the custom resources of these definitions.
func definitionKinds() []*kind {
	return []*kind{{
		resource: definitionsResource, name: "CustomResourceDefinition", apiVersion: definitionsVersion, clusterScoped: true,
		alone: (*generator).definitionOperation, minimums: definitionMinimums,
	}}
}

// definitionOperation makes an operation on a definition, or on its custom resources.
func (g *generator) definitionOperation() operation {
	o := operation{
		kind: g.kinds[0], apiVersion: definitionsVersion, resource: definitionsResource, name: pick(g, append(definitionNames(), definitionNames()[0], definitionNames()[0])...),
		header: map[string]string{},
	}
	switch n := g.IntN(100); {
	case g.index < 2 && g.IntN(4) > 0: // accepted, so that there are custom resources
		d := &director{generator: g, kind: o.kind}
		o.method, o.name, o.body = http.MethodPost, "", d.definition(definitionNames()[g.index], "")
	case n < 14 || g.index < 2:
		o.method, o.body, o.query = http.MethodPost, g.definition(o, ""), pick(g, "", "", "", "", "fieldValidation=Strict", "dryRun=All")
		o.name = ""
	case n < 28:
		o.method, o.query = http.MethodPut, pick(g, "", "", "", "", "fieldValidation=Strict", "dryRun=All")
		o.body = g.definition(o, `,"resourceVersion":"`+pick(g, "$rv", "$rv", "$rv", "$rv", "$rv", "$old")+`"`)
	case n < 40:
		g.patchDefinition(&o)
	case n < 46:
		o.method, o.query = http.MethodPatch, "fieldManager="+pick(g, "m1", "m2")+often(g, 60, "&force=true")
		o.header["Content-Type"] = "application/apply-patch+yaml"
		o.body = strings.ReplaceAll(g.definition(o, ""), `{"type":"object","unknown":1}`, `{"type":"object"}`)
	case n < 49:
		o.method, o.body = http.MethodDelete, pick(g, ``, ``, `{"dryRun":["All"]}`, `{"preconditions":{"uid":"$uid"}}`, `{"preconditions":{"resourceVersion":"$old"}}`, `{"propagationPolicy":"Orphan"}`)
	case n < 53:
		o.method, o.subresource = http.MethodGet, pick(g, "", "", "status", "scale")
	case n < 55:
		o.method, o.name, o.query = http.MethodGet, "", "labelSelector=sequence%3D$ns"
	case n < 61:
		o.method, o.name, o.resource, o.apiVersion = http.MethodGet, "", "", "$ns.example.com/"+pick(g, "v1", "v2")
	default:
		g.instanceOperation(&o)
	}
	return o
}

// definition returns a definition with the name of the operation.
func (g *generator) definition(o operation, metadata string) string {
	return `{"apiVersion":"` + definitionsVersion + `","kind":"CustomResourceDefinition","metadata":{"name":"` + o.name + `","labels":{"sequence":"$ns"}` + metadata +
		often(g, 5, `,"finalizers":["example.com/a"]`) + `},"spec":{"group":"` + pick(g, slices.Repeat([]string{"$ns.example.com"}, 30)...) + `","scope":` +
		pick(g, `"Namespaced"`, `"Namespaced"`, `"Namespaced"`, `"Namespaced"`, `"Namespaced"`, `"Namespaced"`, `"Namespaced"`, `"Namespaced"`, `"Cluster"`, `"Wrong"`) +
		`,"names":` + g.definitionNames(o) + `,"versions":` + g.versions() + g.conversion() + often(g, 6, `,"preserveUnknownFields":`+pick(g, "true", "false")) + `}}`
}

// definitionNames returns the names of a definition. Most are accepted, and change later.
func (g *generator) definitionNames(o operation) string {
	plural, _, _ := strings.Cut(o.name, ".")
	kind := map[string]string{"foos": "Foo", "bars": "Bar"}[plural]
	if g.IntN(25) == 0 {
		kind = pick(g, "Foo", "Bar", "Other", "Not_Valid", "FooList")
	}
	if g.IntN(60) == 0 {
		plural = pick(g, "others", "Not_Valid", "")
	}
	return `{"plural":"` + plural + `","kind":"` + kind + `"` +
		often(g, 40, `,"singular":"`+pick(g, strings.ToLower(kind), "single", "foo", "bar", "bars", "Not Valid")+`"`) +
		often(g, 40, `,"listKind":"`+pick(g, kind+"List", kind+"Items", "FooItems", "BarList", kind)+`"`) +
		often(g, 40, `,"shortNames":`+pick(g, `["f"]`, `["f","g"]`, `["g"]`, `["bars"]`, `["bar","f"]`, `["Not Valid"]`, `[]`, `["f","f"]`)) +
		often(g, 30, `,"categories":`+pick(g, `["all"]`, `["all","mine"]`, `["Not Valid"]`, `[]`)) + `}`
}

// versions returns the versions of a definition, of which one is stored in most cases.
func (g *generator) versions() string {
	names := pick(g, []string{"v1"}, []string{"v1"}, []string{"v1", "v2"}, []string{"v1", "v2"}, []string{"v2", "v1"}, []string{"v1", "v2", "v3alpha1"}, []string{"v2"}, []string{"v1", "v1"}, []string{"V1"}, []string{})
	if g.IntN(2) == 0 {
		names = []string{"v1", "v2"}
	}
	var all []string
	stored := g.IntN(max(1, len(names)))
	for i, name := range names {
		storage := i == stored
		if g.IntN(40) == 0 {
			storage = !storage
		}
		all = append(all, `{"name":"`+name+`","served":`+pick(g, "true", "true", "true", "true", "true", "true", "false")+`,"storage":`+strconv.FormatBool(storage)+g.versionFields()+`}`)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// versionFields returns the other fields of a version.
func (g *generator) versionFields() string {
	const open = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	sized := func(size string) string {
		return `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{` + size + `},"note":{"type":"string"}}},"status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}`
	}
	const integer = `"type":"integer"`
	schema := pick(g, open, open, sized(integer), sized(integer), sized(integer+`,"default":3`), sized(integer+`,"default":4`), sized(integer+`,"maximum":2`), sized(integer+`,"default":5`))
	if g.IntN(12) == 0 {
		schema = pick(g, sized(integer+`,"default":"x"`), sized(`"type":"wrong"`), sized(``), `{"type":"string"}`, `{"properties":{}}`, `{}`, sized(integer+`,"x-kubernetes-validations":[{"rule":"self <"}]`),
			sized(integer+`,"x-kubernetes-validations":[{"rule":"self != 1","message":"not one"}]`), sized(integer+`,"nullable":true`), sized(integer+`,"pattern":"("`),
			`{"type":"object","properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}}}}`,
			`{"type":"object","unknown":1}`)
	}
	fields := `,"schema":{"openAPIV3Schema":` + schema + `}`
	if g.IntN(60) == 0 {
		fields = pick(g, ``, `,"schema":{}`, `,"schema":null`)
	}
	fields += often(g, 30, `,"subresources":`+pick(g, `{"status":{}}`, `{"status":{}}`, `{}`, `{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.ready"}}`,
		`{"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.ready"}}`, `{"scale":{"specReplicasPath":"spec.size","statusReplicasPath":""}}`, `{"scale":{}}`))
	fields += often(g, 10, `,"deprecated":`+pick(g, "true", "true", "false")) + often(g, 5, `,"deprecationWarning":`+pick(g, `"old"`, `""`))
	fields += often(g, 10, `,"selectableFields":`+pick(g, `[{"jsonPath":".spec.note"}]`, `[{"jsonPath":".spec.size"}]`, `[{"jsonPath":".spec.unknown"}]`, `[{"jsonPath":"spec.note"}]`, `[]`,
		`[{"jsonPath":".spec.note"},{"jsonPath":".spec.note"}]`, `[{"jsonPath":".metadata.name"}]`, `[{"jsonPath":""}]`))
	return fields + often(g, 10, `,"additionalPrinterColumns":`+pick(g, `[{"name":"Size","type":"integer","jsonPath":".spec.size"}]`, `[{"name":"","type":"wrong","jsonPath":"x"}]`, `[{"name":"A","type":"string","format":"wrong","jsonPath":".x"}]`))
}

// conversion returns the conversion of a definition. Webhooks are not called: nothing serves at their address.
func (g *generator) conversion() string {
	return often(g, 12, `,"conversion":`+pick(g, `null`, `{}`, `{"strategy":"None"}`, `{"strategy":"None"}`, `{"strategy":""}`, `{"strategy":"Wrong"}`, `{"strategy":"Webhook"}`,
		`{"strategy":"None","webhook":{"conversionReviewVersions":["v1"]}}`, `{"strategy":"Webhook","webhook":{"conversionReviewVersions":[],"clientConfig":{"url":"http://x"}}}`))
}

func (g *generator) patchDefinition(o *operation) {
	o.method = http.MethodPatch
	o.header["Content-Type"] = "application/" + pick(g, "merge-patch", "merge-patch", "strategic-merge-patch") + "+json"
	name := pick(g, `"listKind":"`+pick(g, "FooItems", "FooList", "BarItems")+`"`, `"shortNames":`+pick(g, `["f"]`, `["g","f"]`, `null`, `["bar"]`), `"categories":`+pick(g, `["all"]`, `null`),
		`"singular":"`+pick(g, "foo", "bar", "single")+`"`, `"kind":"Other"`, `"plural":"others"`)
	o.body = pick(g,
		`{"spec":{"names":{`+name+`}}}`, `{"spec":{"names":{`+name+`}}}`, `{"spec":{"names":{`+name+`}}}`,
		`{"spec":{"versions":`+g.versions()+`}}`, `{"spec":{"versions":`+g.versions()+`}}`, `{"spec":{"versions":`+g.versions()+`}}`, `{"spec":{"versions":`+g.versions()+`}}`,
		`{"spec":{"scope":"`+pick(g, "Cluster", "Namespaced")+`"}}`, `{"spec":{"group":"other.example.com"}}`, `{"metadata":{"labels":{"app":"`+g.value()+`"}}}`,
		`{"metadata":{"finalizers":`+pick(g, `null`, `["example.com/a"]`)+`}}`, `{"spec":{"preserveUnknownFields":`+pick(g, "true", "false", "null")+`}}`, `{}`, `{"spec":{"unknown":1}}`,
		`{"spec":{`+strings.TrimPrefix(`,"conversion":`+pick(g, `null`, `{}`, `{"strategy":"None"}`, `{"strategy":"Wrong"}`, `{"strategy":""}`), ",")+`}}`,
	)
	if g.IntN(8) == 0 {
		o.subresource = "status"
		o.body = pick(g, `{"status":{"storedVersions":`+pick(g, `["v1"]`, `["v2"]`, `["v1","v2"]`, `["v9"]`, `[]`)+`}}`, `{"metadata":{"labels":{"app":"status"}}}`, `{"spec":{"scope":"Cluster"}}`)
	}
}

// instanceOperation makes an operation on a custom resource. Its version may not be served.
func (g *generator) instanceOperation(o *operation) {
	plural := pick(g, "foos", "foos", "foos", "bars")
	o.resource, o.apiVersion = plural, "$ns.example.com/"+pick(g, "v1", "v1", "v1", "v2", "v2", "v3alpha1")
	o.name, o.namespace = pick(g, "a", "a", "b"), pick(g, "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "")
	kind := map[string]string{"foos": "Foo", "bars": "Bar"}[plural]
	if g.IntN(30) == 0 {
		kind = pick(g, "Other", "FooItems", "Bar")
	}
	body := func(metadata string) string {
		return `{"apiVersion":"` + o.apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + o.name + `","labels":{"app":"` + g.value() + `"}` + metadata + `}` +
			often(g, 80, `,"spec":`+pick(g, `{"size":1}`, `{"size":3}`, `{"note":"x"}`, `{"size":1,"unknown":{"a":1}}`, `{"size":"x"}`, `{}`, `{"size":null}`)) +
			often(g, 20, `,"status":{"ready":1}`) + often(g, 10, `,"unknown":1`) + `}`
	}
	validation := pick(g, "", "", "", "fieldValidation=Strict", "fieldValidation=Ignore", "dryRun=All")
	switch n := g.IntN(100); {
	case n < 32:
		o.method, o.body, o.query, o.name = http.MethodPost, body(""), validation, ""
	case n < 48:
		o.method, o.body, o.query = http.MethodPut, body(`,"resourceVersion":"`+pick(g, "$rv", "$rv", "$rv", "$old")+`"`), validation
		o.subresource = pick(g, "", "", "", "status")
	case n < 56:
		o.method, o.header["Content-Type"] = http.MethodPatch, "application/merge-patch+json"
		o.body = pick(g, `{"spec":{"size":2}}`, `{"spec":{"note":"`+g.value()+`"}}`, `{"metadata":{"labels":{"app":"`+g.value()+`"}}}`, `{"status":{"ready":2}}`)
		o.subresource = pick(g, "", "", "", "status")
	case n < 64:
		o.method, o.header["Content-Type"] = http.MethodPatch, "application/apply-patch+yaml"
		o.query, o.body = "fieldManager="+pick(g, "m1", "m2")+often(g, 50, "&force=true"), body("")
		o.subresource = pick(g, "", "", "", "status")
	case n < 76:
		o.method, o.subresource = http.MethodGet, pick(g, "", "", "", "", "status", "scale")
	case n < 90:
		o.method, o.name, o.query = http.MethodGet, "", pick(g, "", "", "labelSelector=app%3Dweb", "fieldSelector=spec.note%3Dx", "fieldSelector=spec.size%3D1", "fieldSelector=metadata.name%3Da", "limit=1")
		g.accept(o)
	case n < 95:
		o.method = http.MethodDelete
	default:
		o.method, o.name = http.MethodDelete, ""
	}
	if o.namespace == "" && o.name == "" && o.method == http.MethodGet {
		return // a list of all namespaces, which only have objects of this sequence
	}
}

// settle waits until the controllers of the real server have handled a change of a definition, and returns the definitions of
// the sequence, and that of the operation. The server in memory has no such delay.
func (s *side) settle(t *testing.T, o operation) string {
	t.Helper()
	names := definitionNames()
	if created, _ := decode(o.body).(map[string]any); o.name == "" {
		metadata, _ := created["metadata"].(map[string]any)
		o.name, _ = metadata["name"].(string)
	}
	if o.name != "" && !slices.Contains(names, o.name) && !strings.Contains(o.name, "/") {
		names = append(names, o.name)
	}
	const interval, quiet, timeout = 20 * time.Millisecond, 250 * time.Millisecond, 20 * time.Second
	read := func() (all []result, pending bool) {
		for _, name := range names {
			res := s.send(t.Context(), http.MethodGet, "/apis/"+definitionsVersion+"/"+definitionsResource+"/"+strings.ReplaceAll(name, "$ns", s.namespace), "", nil)
			// One that is deleted stays while it has another finalizer than that of the server.
			pending = pending || res.code == http.StatusOK && (!strings.Contains(res.body, `"type":"NamesAccepted"`) || strings.Contains(res.body, `"reason":"InstanceDeletionPending"`) ||
				strings.Contains(res.body, `"customresourcecleanup.apiextensions.k8s.io"`) || strings.Contains(res.body, `"reason":"Installing"`))
			all = append(all, res)
		}
		return all, pending
	}
	all, pending := read()
	for changed, deadline := time.Now(), time.Now().Add(timeout); s.delayed && time.Now().Before(deadline) && (pending || time.Since(changed) < quiet); {
		time.Sleep(interval)
		now, stillPending := read()
		if !slices.EqualFunc(all, now, func(a, b result) bool { return a.body == b.body }) {
			changed = time.Now()
		}
		all, pending = now, stillPending
	}
	text := ""
	for i, res := range all {
		text += "\nsettled: " + s.text(res)
		s.observe(operation{kind: kindOf(definitionsResource), resource: definitionsResource, name: names[i]}, res)
	}
	return text
}

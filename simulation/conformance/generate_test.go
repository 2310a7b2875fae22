package conformance

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// sequenceLength is the number of operations that share a namespace.
const sequenceLength = 60

// generator makes random operations.
type generator struct {
	*rand.Rand
	index int
	kinds []*kind // two, so that operations meet the objects of earlier ones
	// next are the operations of a scenario that are left.
	next []operation
}

// generate returns a sequence of operations on some of the kinds, always the same one for a seed and a number.
func generate(kinds []*kind, seed, sequence uint64, length int) []operation {
	g := newGenerator(kinds, seed, sequence)
	return g.operations(length, g.operation)
}

// Numbers of sequences that are not random ones from the first operation on.
const firstExpired, firstDirected, firstDirectedForm = 1 << 32, 1 << 33, 1 << 34

func newGenerator(kinds []*kind, seed, sequence uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, sequence))}
	for len(g.kinds) < 2 {
		k := weighted(g, kinds, func(k *kind) int { return max(1, k.weight) })
		switch {
		case len(g.kinds) == 0:
			g.kinds = append(g.kinds, k)
		case k.notWith == g.kinds[0].resource || g.kinds[0].notWith == k.resource || k.alone != nil:
			continue
		default:
			g.kinds = append(g.kinds, k)
		}
		if k.alone != nil {
			break
		}
	}
	return g
}

func (g *generator) operations(length int, next func() operation) []operation {
	ops := make([]operation, length)
	for i := range ops {
		ops[i] = next()
		g.index++
	}
	return ops
}

func pick[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

// weighted returns one of the values, more often those with a higher weight.
func weighted[T any](g *generator, values []T, weight func(T) int) T {
	total := 0
	for _, v := range values {
		total += weight(v)
	}
	n := g.IntN(total)
	for _, v := range values {
		if n -= weight(v); n < 0 {
			return v
		}
	}
	panic("unreachable: n is less than the sum of the weights")
}

// often returns value in n of 100 cases, otherwise the zero value.
func often[T any](g *generator, n int, value T) (v T) {
	if g.IntN(100) < n {
		return value
	}
	return v
}

func (g *generator) operation() operation {
	if alone := g.kinds[0].alone; alone != nil {
		return alone(g)
	}
	if len(g.next) > 0 {
		o := g.next[0]
		g.next = g.next[1:]
		return o
	}
	k := pick(g, g.kinds...)
	if k.scenario != nil && g.index > 3 && g.IntN(15) == 0 {
		g.next = k.scenario(g)
		return g.operation()
	}
	o := operation{kind: k, apiVersion: k.apiVersion, resource: k.resource, name: pick(g, "a", "a", "a", "b", "b", "c"), header: map[string]string{}}
	if len(k.otherVersions) > 0 && g.IntN(3) == 0 {
		o.apiVersion = pick(g, k.otherVersions...)
	}
	if k.clusterScoped {
		o.namespace, o.name = "", "$ns-"+pick(g, "x", "y")
	} else {
		o.namespace = pick(g, "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "$ns", "$ns-x")
	}
	if g.index > 3 && g.IntN(60) == 0 {
		g.next = g.paging(k)
		return g.operation()
	}
	if len(k.posts) > 0 && g.index > 3 && g.IntN(10) == 0 {
		pick(g, k.posts...)(g, &o)
		return o
	}
	switch n := g.IntN(100); {
	case n < 24 || g.index < 3:
		g.create(&o)
	case n < 46:
		g.update(&o)
	case n < 57:
		g.patch(&o)
	case n < 68:
		g.apply(&o)
	case n < 75:
		g.remove(&o)
	case n < 77 && !k.noDeleteCollection:
		g.removeCollection(&o)
	case n < 84:
		g.read(&o)
	case n < 93:
		g.list(&o)
	case n < 98:
		g.watch(&o)
	default:
		g.unusual(&o)
	}
	return o
}

func (g *generator) create(o *operation) {
	k := o.kind
	o.method = "POST"
	m := g.metadata(*o)
	switch {
	case g.IntN(10) == 0 && !k.clusterScoped:
		m = strings.Replace(m, `"name":"`+o.name+`"`, fmt.Sprintf(`"generateName":"gen-%d-"`, g.index), 1)
	case g.IntN(25) == 0:
		if k.randomOrder {
			// The errors of several invalid labels have a random order, and the name of a namespace is one of its labels.
			m = strings.NewReplacer(`,"bad/label/key":"x"`, ``, `,"l":"bad value"`, ``).Replace(m)
		}
		m = strings.Replace(m, `"name":"`+o.name+`"`, `"name":`+pick(g, `"Not_A_Name"`, `""`, `"`+strings.Repeat("n", 254)+`"`, `"a/b"`), 1)
	}
	m = strings.Replace(m, `}`, often(g, 3, `,"resourceVersion":"1"`)+`}`, 1)
	o.body = g.body(*o, insert(m, g.managedFields(*o)))
	o.query = g.writeQuery()
	o.name = ""
	g.userAgent(o)
	g.media(o)
}

func (g *generator) update(o *operation) {
	o.method = "PUT"
	m := g.metadata(*o)
	version := pick(g, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$old"`, ``, ``)
	version += pick(g, ``, ``, ``, ``, `,"uid":"$uid"`, `,"uid":"$uid"`, `,"uid":"11111111-2222-4333-8444-555555555555"`)
	version += often(g, 5, pick(g, `,"creationTimestamp":"2020-01-01T00:00:00Z"`, `,"deletionTimestamp":"2020-01-01T00:00:00Z"`, `,"generation":7`, `,"deletionGracePeriodSeconds":5`, `,"selfLink":"/x"`))
	m = insert(m, version+g.managedFields(*o))
	g.userAgent(o)
	g.media(o)
	g.subresource(o, "update")
	o.body = g.body(*o, m)
	if g.IntN(40) == 0 {
		o.body = strings.Replace(o.body, `"name":"`+o.name+`"`, `"name":"other"`, 1)
	}
	o.query = g.writeQuery()
}

// subresource sometimes addresses a subresource.
func (g *generator) subresource(o *operation, operation string) {
	for _, s := range o.kind.subresources {
		if slices.Contains(s.operations, operation) && g.IntN(100) < s.percent {
			o.subresource = s.name
			return
		}
	}
}

// media sometimes makes the body protobuf or YAML. Protobuf is not for custom resources: the real server (1.36) then closes
// the connection without a response.
func (g *generator) media(o *operation) {
	switch n := g.IntN(100); {
	case n < 18 && o.kind.definition == "":
		o.header["Content-Type"] = "application/vnd.kubernetes.protobuf"
		g.accept(o)
	case n >= 94: // JSON is YAML
		o.header["Content-Type"] = "application/yaml"
		o.header["Accept"] = often(g, 50, "application/yaml")
	}
}

// userAgent sometimes sets another name of the client, which is its manager in managed fields.
func (g *generator) userAgent(o *operation) {
	if agent := often(g, 25, pick(g, "m1", "m2/v1.0 (linux)", "other/v2", "/none", "\u00e9 x/1")); agent != "" {
		o.header["User-Agent"] = agent
	}
}

// managedFields are sometimes in the metadata of a request, to change or to reset those of the object.
func (g *generator) managedFields(o operation) string {
	return often(g, 8, `,"managedFields":`+pick(g, `[]`, `[{}]`, `null`,
		`[{"manager":"m1"}]`, `[{"manager":"m1","operation":"Wrong","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]`,
		`[{"manager":"m1","operation":"Apply","apiVersion":"`+o.apiVersion+`","fieldsType":"FieldsV1","fieldsV1":{"f:`+o.kind.field(g).name+`":{}},"time":"2020-01-01T00:00:00Z"}]`,
		`[{"manager":"m2","operation":"Update","apiVersion":"`+o.apiVersion+`","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:app":{}}}},"time":"2020-01-01T00:00:00Z"}]`))
}

// apply makes a server-side apply.
func (g *generator) apply(o *operation) {
	o.method = "PATCH"
	o.header["Content-Type"] = "application/apply-patch+yaml"
	g.subresource(o, "apply")
	o.query = "fieldManager=" + pick(g, "m1", "m1", "m2", "m3", "conformance") + often(g, 45, "&force=true") +
		often(g, 15, pick(g, "&dryRun=All", "&fieldValidation=Strict", "&fieldValidation=Ignore", "&force=false"))
	if g.IntN(30) == 0 {
		o.query = pick(g, "", "force=true", "fieldManager="+strings.Repeat("m", 129), "fieldManager=m1&dryRun=Some", "fieldManager=m1&force=x")
	}
	m := g.metadata(*o)
	m = insert(m, often(g, 12, pick(g, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$old"`, `,"uid":"$uid"`,
		`,"uid":"11111111-2222-4333-8444-555555555555"`, `,"managedFields":[]`, `,"managedFields":[{}]`, `,"generateName":"g-"`)))
	o.body = g.body(*o, m)
	switch g.IntN(30) {
	case 0:
		o.body = strings.Replace(o.body, `"name":"`+o.name+`"`, pick(g, `"name":"other"`, `"x":"y"`), 1)
	case 1:
		o.body = strings.Replace(o.body, "{", `{"metadata":{"name":"twice"},`, 1)
	case 2:
		o.body = "apiVersion: " + o.apiVersion + "\nkind: " + pick(g, "Widget", "ConfigMap", "Lease", "Secret") + "\nmetadata:\n  name: " + o.name + "\n  labels: {app: web}\n"
	}
}

// insert adds fields at the end of a JSON object.
func insert(object, fields string) string {
	return strings.TrimSuffix(object, "}") + fields + "}"
}

func (g *generator) patch(o *operation) {
	k := o.kind
	o.method = "PATCH"
	o.query = g.writeQuery()
	g.subresource(o, "patch")
	media := pick(g, "merge-patch", "merge-patch", "json-patch", "strategic-merge-patch")
	if media == "strategic-merge-patch" && k.definition != "" && g.IntN(5) > 0 {
		media = "merge-patch"
	}
	o.header["Content-Type"] = "application/" + media + "+json"
	if k.patch != nil && g.IntN(3) == 0 {
		o.body = k.patch(g, media)
		return
	}
	field := k.field(g)
	if media == "json-patch" {
		o.body = "[" + pick(g,
			`{"op":"add","path":"/metadata/labels","value":{"app":"web"}}`,
			`{"op":"remove","path":"/metadata/labels/app"}`,
			`{"op":"replace","path":"/metadata/annotations","value":{"n":"`+g.value()+`"}}`,
			`{"op":"add","path":"/metadata/finalizers","value":["example.com/a"]}`,
			`{"op":"remove","path":"/metadata/finalizers"}`,
			`{"op":"remove","path":"/metadata/finalizers`+map[bool]string{false: "/0"}[k.randomOrder]+`"}`,
			`{"op":"test","path":"/metadata/resourceVersion","value":"$rv"},{"op":"add","path":"/metadata/labels","value":{"app":"tested"}}`,
			`{"op":"test","path":"/metadata/name","value":"nobody"}`,
			`{"op":"add","path":"/`+field.name+`","value":`+field.value(g)+`}`,
			`{"op":"remove","path":"/`+k.field(g).name+`"}`,
			`{"op":"replace","path":"/status","value":{"phase":"`+g.value()+`"}}`,
			`{"op":"move","from":"/metadata/labels","path":"/metadata/annotations"}`,
			`{"op":"nothing","path":"/metadata"}`,
			`{"op":"add","path":"/metadata/unknown","value":1}`,
			`{"op":"replace","path":"/metadata/name","value":"renamed"}`,
			``,
		) + "]"
		return
	}
	o.body = pick(g,
		`{"metadata":{"labels":{"app":"`+g.value()+`"}}}`,
		`{"metadata":{"labels":{"app":null}}}`,
		`{"metadata":{"labels":null,"annotations":{"n":"`+g.value()+`"}}}`,
		`{"metadata":{"finalizers":["example.com/`+pick(g, "a", "b")+`"]}}`,
		`{"metadata":{"finalizers":null}}`,
		`{"metadata":{"finalizers":[]}}`,
		`{"metadata":{"resourceVersion":"$rv","labels":{"app":"`+g.value()+`"}}}`,
		`{"metadata":{"resourceVersion":"$old","labels":{"app":"`+g.value()+`"}}}`,
		`{"metadata":{"resourceVersion":null,"labels":{"app":"`+g.value()+`"}}}`,
		`{"metadata":{"uid":"11111111-2222-4333-8444-555555555555"}}`,
		`{"metadata":{"name":"renamed"}}`,
		`{"metadata":{"namespace":"elsewhere"}}`,
		`{"metadata":{"labels":{"not a label":"x"}}}`,
		`{"metadata":{"ownerReferences":[`+g.owner("o1", true)+`]}}`,
		`{"metadata":{"ownerReferences":[`+g.owner("o1", true)+`,`+g.owner("o2", true)+`]}}`,
		`{"metadata":{"ownerReferences":[`+g.owner("o1", true)+`,`+g.owner("o1", true)+`]}}`,
		`{"`+field.name+`":`+field.value(g)+`}`,
		`{"`+k.field(g).name+`":null}`,
		`{"`+k.field(g).name+`":{"k":null,"l":"`+g.value()+`"}}`,
		`{"status":{"phase":"`+g.value()+`"}}`,
		`{}`,
		`{"unknown":{"field":1}}`,
		`{"metadata":{"unknown":"x"}}`,
		`[]`,
		`{"metadata":{"labels":{"app":7}}}`,
		`not json`,
	)
}

func (g *generator) remove(o *operation) {
	o.method = "DELETE"
	if g.IntN(3) == 0 {
		o.query = pick(g, "", "", "propagationPolicy=Foreground", "propagationPolicy=Orphan", "gracePeriodSeconds=0", "dryRun=All", "orphanDependents=false", "propagationPolicy=Wrong")
		return
	}
	o.body = g.deleteOptions()
}

func (g *generator) deleteOptions() string {
	kind := pick(g, `"v1"`, `"v1"`, `"meta.k8s.io/v1"`, `"example.com/unknown"`)
	return pick(g, `{"dryRun":[]`, `{"kind":"DeleteOptions","apiVersion":`+kind) + pick(g, ``, ``, ``,
		`,"preconditions":{"uid":"$uid"}`, `,"preconditions":{"uid":"11111111-2222-4333-8444-555555555555"}`,
		`,"preconditions":{"resourceVersion":"$rv"}`, `,"preconditions":{"resourceVersion":"$old"}`,
		`,"propagationPolicy":"Background"`, `,"propagationPolicy":"Foreground"`, `,"propagationPolicy":"Orphan"`,
		`,"gracePeriodSeconds":-1`, `,"dryRun":["All"]`, `,"orphanDependents":true`, `,"orphanDependents":false`,
		`,"orphanDependents":true,"propagationPolicy":"Orphan"`, `,"dryRun":["Some"]`) + `}`
}

func (g *generator) removeCollection(o *operation) {
	o.method, o.name = "DELETE", ""
	o.query = pick(g, "", "labelSelector=app%3Dweb", "fieldSelector=metadata.name%3Da", "dryRun=All", "limit=1", "propagationPolicy=Foreground")
	if o.kind.clusterScoped { // only the objects of this sequence
		o.query = "labelSelector=sequence%3D$ns" + often(g, 40, pick(g, "&fieldSelector=metadata.name%3D$ns-x", "&dryRun=All", "&limit=1"))
	}
	if g.IntN(4) == 0 {
		o.query = strings.Trim(o.query+"&"+pick(g, "resourceVersion=0", "resourceVersion=$first", "resourceVersion=$middle", "resourceVersion=$latest",
			"resourceVersion=$middle&resourceVersionMatch=Exact", "resourceVersion=$first&resourceVersionMatch=NotOlderThan", "resourceVersion=x", "resourceVersionMatch=Exact", "continue=wrong",
			"sendInitialEvents=true"), "&")
	}
	if g.IntN(4) == 0 { // without $uid and $rv, which only one object has
		o.body = strings.NewReplacer(`"$uid"`, `"22222222-2222-4333-8444-555555555555"`, `"$rv"`, `"1"`, `"$old"`, `"1"`).Replace(g.deleteOptions())
	}
}

func (g *generator) read(o *operation) {
	o.method = "GET"
	o.query = pick(g, "", "", "", "", "resourceVersion=0", "resourceVersion=$rv", "resourceVersion=x")
	g.accept(o)
	g.subresource(o, "get")
}

// unusual makes requests that most resources do not serve, or other forms of bodies.
func (g *generator) unusual(o *operation) {
	mapField := cmp.Or(o.kind.mapField, "unknown")
	switch g.IntN(14) {
	case 0:
		o.method, o.body = "POST", "{}" // to a named object
	case 1:
		o.method, o.name, o.body = "PUT", "", "{}"
	case 2:
		o.method, o.name, o.body = "PATCH", "", "{}"
		o.header["Content-Type"] = "application/merge-patch+json"
	case 3:
		o.method, o.subresource = "DELETE", "status"
	case 4:
		o.method, o.subresource = "GET", pick(g, "scale", "unknown", "status", "finalize")
	case 5:
		o.method, o.resource = "GET", "unknowns"
	case 6:
		o.method, o.namespace, o.body = pick(g, "POST", "DELETE"), "", "{}"
		if !o.kind.clusterScoped || o.kind.noDeleteCollection && o.method == "DELETE" {
			o.name = ""
		}
	case 7:
		o.method, o.body = "PATCH", "metadata: {}"
		o.header["Content-Type"] = pick(g, "application/yaml", "text/plain", "")
	case 8:
		o.method = "GET"
		o.header["Accept"] = pick(g, "text/plain", "application/xml", "application/json;as=Unknown;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v9",
			"text/plain, */*;q=0.1", "application/json;q=0.1, application/yaml")
	case 9:
		o.method, o.body = "PUT", "metadata:\n  name: "+o.name+"\n  resourceVersion: \"$rv\"\n"+mapField+":\n  k: v1\n  k: v2\n"
		o.header["Content-Type"] = "application/yaml"
		o.query = g.writeQuery()
	case 10:
		o.method = "OPTIONS"
	case 11:
		o.method, o.subresource, o.body = pick(g, "PUT", "PATCH", "POST"), pick(g, "scale", "unknown", "status"), "{}"
		o.header["Content-Type"] = "application/merge-patch+json"
	default:
		kind := ""
		if o.kind.definition != "" {
			kind = "apiVersion: " + o.apiVersion + "\nkind: " + o.kind.name + "\n"
		}
		o.method, o.body = "POST", kind+"metadata:\n  name: "+o.name+"\n  labels: {sequence: $ns, app: web}\n"+mapField+":\n  k: v1\n"
		o.header["Content-Type"], o.header["Accept"] = "application/yaml", pick(g, "application/yaml", "application/json")
		o.name = ""
	}
}

// accept sometimes asks for another form of the response.
func (g *generator) accept(o *operation) {
	switch form := pick(g, "PartialObjectMetadata", "PartialObjectMetadataList"); g.IntN(10) {
	case 0, 1:
		o.header["Accept"] = "application/json;as=" + form + ";g=meta.k8s.io;v=v1"
	case 2:
		o.header["Accept"] = "application/vnd.kubernetes.protobuf;as=" + form + ";g=meta.k8s.io;v=v1"
	case 3:
		o.header["Accept"] = pick(g, "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json")
	}
}

func (g *generator) list(o *operation) {
	o.method, o.name = "GET", ""
	var query []string
	add := func(text string) {
		if text != "" {
			query = append(query, text)
		}
	}
	if o.kind.clusterScoped {
		add("labelSelector=sequence%3D$ns")
		add(pick(g, append(g.fieldSelectors(o), "", "", "fieldSelector=metadata.name%3D$ns-x", "fieldSelector=metadata.namespace%3D$ns")...))
	} else {
		add(g.selector(o))
		if g.IntN(10) == 0 {
			o.namespace = ""
			query = []string{pick(g, "labelSelector=sequence%3D$ns", "fieldSelector=metadata.namespace%3D$ns")}
		}
	}
	add(g.listParameters())
	o.query = strings.Join(query, "&")
	g.accept(o)
}

// listParameters returns the page and the version of a list. Most combinations are valid.
func (g *generator) listParameters() string {
	query := often(g, 40, "&limit="+pick(g, "1", "1", "2", "2", "3", "3", "0", "-1"))
	if g.IntN(4) == 0 {
		query += "&continue=" + pick(g, "$continue", "$continue", "$continue", "$continue", "wrong")
		return strings.TrimPrefix(query+often(g, 20, pick(g, "&resourceVersion=0", "&resourceVersion=$first", "&resourceVersion=0&resourceVersionMatch=NotOlderThan")), "&")
	}
	if g.IntN(10) < 4 {
		query += "&resourceVersion=" + pick(g, versionParameters()...) + often(g, 60, "&resourceVersionMatch="+pick(g, "Exact", "Exact", "NotOlderThan", "NotOlderThan", "Wrong"))
	}
	return strings.TrimPrefix(query+often(g, 5, "&resourceVersionMatch="+pick(g, "Exact", "NotOlderThan")), "&")
}

// versionParameters are versions that a list or a watch can ask for.
func versionParameters() []string {
	return []string{"0", "0", "$first", "$middle", "$middle", "$latest", "$latest", "$listed", "$listed", "x", "00"}
}

// paging makes operations that read a list in pages, and change its objects in between.
func (g *generator) paging(k *kind) []operation {
	object := func() *director {
		d := &director{generator: g, kind: k, name: fmt.Sprintf("p%d", g.IntN(6))}
		if k.clusterScoped {
			d.name = "$ns-" + d.name
		}
		return d
	}
	template := object().list("GET", "")
	template.apiVersion = pick(g, append(k.otherVersions, k.apiVersion, k.apiVersion)...)
	g.accept(&template)
	selector := "labelSelector=sequence%3D$ns" + often(g, 40, "%2Capp%3Dweb")
	if !k.clusterScoped && g.IntN(2) == 0 {
		selector = pick(g, "", "labelSelector=app%3Dweb", "fieldSelector=metadata.name%21%3Dp2")
	}
	page := func(query string) operation {
		o := template
		o.query = strings.Trim(selector+"&"+query, "&")
		return o
	}
	change := func() []operation {
		d := object()
		switch g.IntN(4) {
		case 0:
			return []operation{d.operation("DELETE", d.name, "")}
		case 1:
			return []operation{d.patch("application/merge-patch+json", `{"metadata":{"labels":{"app":"`+g.value()+`"}}}`)}
		}
		return d.existing()
	}
	var ops []operation
	for range 3 + g.IntN(3) {
		ops = append(ops, change()...)
	}
	ops = append(ops, page("limit="+pick(g, "1", "1", "2")+often(g, 40, pick(g, "&resourceVersion=0", "&resourceVersion=$middle", "&resourceVersion=$latest",
		"&resourceVersion=$latest&resourceVersionMatch=Exact", "&resourceVersion=$middle&resourceVersionMatch=Exact", "&resourceVersion=$first&resourceVersionMatch=NotOlderThan"))))
	for range 2 + g.IntN(2) {
		for range g.IntN(3) {
			ops = append(ops, change()...)
		}
		ops = append(ops, page("continue=$continue"+often(g, 80, "&limit="+pick(g, "1", "1", "2", "3"))+often(g, 10, "&resourceVersion=0")))
	}
	return append(ops, page("resourceVersion=$listed"+pick(g, "&resourceVersionMatch=Exact", "&limit=2", "")))
}

func (g *generator) selector(o *operation) string {
	return pick(g, append(g.fieldSelectors(o), "", "", "", "", "labelSelector=app%3Dweb", "labelSelector=app%21%3Dweb", "labelSelector=app", "labelSelector=%21app",
		"labelSelector=app+in+%28web%2Cv1%29", "fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%21%3Da", "fieldSelector=metadata.namespace%3D$ns",
		"fieldSelector=spec.unknown%3Da", "labelSelector=%3D%3D", "fieldSelector=metadata.namespace%3Delsewhere")...)
}

// fieldSelectors returns the selectors that only this kind has.
func (g *generator) fieldSelectors(o *operation) []string {
	var all []string
	for _, s := range o.kind.fieldSelectors {
		all = append(all, "fieldSelector="+strings.ReplaceAll(s, "=", "%3D"))
	}
	return all
}

func (g *generator) watch(o *operation) {
	o.method, o.watch, o.name = "GET", true, ""
	selector := pick(g, "", "", "", "labelSelector=app%3Dweb", "labelSelector=app+in+%28web%29", "fieldSelector=metadata.name%3Da", "labelSelector=app%3Dweb&fieldSelector=metadata.name%3Da")
	if o.kind.clusterScoped {
		selector = "labelSelector=sequence%3D$ns"
	} else if o.namespace = "$ns"; g.IntN(5) == 0 {
		o.namespace = "" // all, but only objects of this sequence
		selector = pick(g, "labelSelector=sequence%3D$ns", "fieldSelector=metadata.namespace%3D$ns", "labelSelector=sequence%3D$ns%2Capp%3Dweb")
	}
	from := g.watchParameters()
	o.query = "watch=true"
	for _, part := range []string{selector, from} {
		if part != "" {
			o.query += "&" + part
		}
	}
	g.accept(o)
}

// watchParameters returns the version and the initial events of a watch. Most combinations are valid.
func (g *generator) watchParameters() string {
	send, match := "", ""
	switch g.IntN(10) {
	case 0:
		send, match = pick(g, "", "true", "false"), pick(g, "", "NotOlderThan", "Exact", "Wrong")
	case 1, 2, 3:
		send, match = "true", "NotOlderThan"
	case 4, 5:
		send, match = "false", "NotOlderThan"
	}
	return watchQuery(pick(g, append(versionParameters(), "", "", "$first")...), match, send, pick(g, "", "", "true", "true", "false")) +
		often(g, 5, pick(g, "&limit=1", "&continue=$continue", "&continue=wrong"))
}

// watchQuery returns the parameters of a watch that are not empty.
func watchQuery(version, match, send, bookmarks string) string {
	query := ""
	for _, p := range []struct{ name, value string }{
		{"resourceVersion", version}, {"resourceVersionMatch", match}, {"sendInitialEvents", send}, {"allowWatchBookmarks", bookmarks},
	} {
		if p.value != "" {
			query += "&" + p.name + "=" + p.value
		}
	}
	return strings.TrimPrefix(query, "&")
}

func (g *generator) writeQuery() string {
	if g.IntN(30) == 0 {
		return pick(g, "dryRun=Some", "fieldValidation=Wrong", "fieldManager="+strings.Repeat("m", 129), "fieldManager=%00", "force=true")
	}
	return pick(g, "", "", "", "", "", "", "", "dryRun=All", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldManager=m")
}

func (g *generator) value() string { return pick(g, "web", "v1", "v2") }

func (g *generator) owner(name string, controller bool) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":"00000000-0000-4000-8000-0000000000%02d","controller":%t}`, name, len(name), controller)
}

// metadata returns random metadata with the name of the operation.
func (g *generator) metadata(o operation) string {
	m := `{"name":"` + o.name + `"`
	labels := `"sequence":"$ns"` + often(g, 60, `,"app":"`+g.value()+`"`) + often(g, 5, pick(g, `,"bad/label/key":"x"`, `,"l":"bad value"`))
	m += `,"labels":{` + labels + `}`
	m += often(g, 25, `,"annotations":{"n":"`+g.value()+`"}`)
	m += often(g, 20, `,"finalizers":[`+pick(g, `"example.com/a"`, `"example.com/a","example.com/b"`, `"plain"`, `"example.com"`, `"orphan"`, `"foregroundDeletion"`, `"foregroundDeletion","orphan"`, `"bad finalizer"`)+`]`)
	m += often(g, 10, `,"ownerReferences":[`+pick(g, g.owner("o1", true), g.owner("o1", false), g.owner("o1", true)+","+g.owner("o2", true), g.owner("o1", true)+","+g.owner("o1", true))+`]`)
	if o.namespace != "" {
		m += often(g, 30, `,"namespace":"`+pick(g, o.namespace, o.namespace, o.namespace, o.namespace, "elsewhere")+`"`)
	} else {
		m += often(g, 5, `,"namespace":"elsewhere"`)
	}
	m += often(g, 3, `,"unknown":"x"`)
	return m + `}`
}

// body returns an object with the metadata.
func (g *generator) body(o operation, metadata string) string {
	for _, s := range o.kind.subresources {
		if s.name == o.subresource && s.body != nil {
			return s.body(g, o, metadata)
		}
	}
	typeMeta := o.kind.typeMeta(o.apiVersion)
	switch g.IntN(80) {
	case 0, 3:
		typeMeta = ""
	case 1:
		typeMeta = `"apiVersion":"v1","kind":"Secret",`
	case 2:
		return pick(g, `{"metadata":`, `[]`, `text`, ``)
	}
	fields, used := "", map[string]bool{}
	add := func(f field) {
		used[f.name] = true
		fields += `,"` + f.name + `":` + f.value(g)
	}
	for _, f := range o.kind.fields {
		if f.required && (f.apiVersion == "" || f.apiVersion == o.apiVersion) && g.IntN(30) > 0 {
			add(f)
		}
	}
	for f := o.kind.field(g); !used[f.name] && g.IntN(4) > 0; f = o.kind.field(g) {
		add(f)
	}
	fields += often(g, 4, `,"unknownField":{"x":1}`) + often(g, 2, `,"metadata":{}`)
	return `{` + typeMeta + `"metadata":` + metadata + fields + `}`
}

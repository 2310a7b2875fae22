package conformance

import (
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// schemaKinds returns custom kinds with a schema. Both servers get their definition.
func schemaKinds() []*kind {
	text, err := os.ReadFile("../internal/crds/testdata/gadgets.yaml")
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		panic(err)
	}
	all := []string{"get", "update", "patch", "apply"}
	return []*kind{{
		resource: "gadgets", name: "Gadget", apiVersion: "conformance.evenkeel.dev/v1", otherVersions: []string{"conformance.evenkeel.dev/v2"}, weight: 2,
		definition: string(text), minimal: `"spec":{"color":"red"}`, mapField: "spec",
		fields: []field{
			{name: "spec", weight: 3, required: true, value: gadgetSpec},
			{name: "status", value: gadgetStatus},
		},
		subresources: []subresource{
			{name: "status", operations: all, percent: 20},
			{name: "scale", operations: all, percent: 12, body: func(g *generator, _ operation, metadata string) string {
				return `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":` + metadata + `,"spec":{"replicas":` + pick(g, "0", "1", "2", "7", "300", "-1") + `}}`
			}},
		},
		fieldSelectors: []string{"spec.color=red", "spec.color!=red", "spec.replicas=1", "spec.replicas=1,spec.color=red", "spec.note=x"},
		patch:          gadgetPatch,
	}}
}

// gadgetFields are the fields of the spec, each with valid and invalid values.
func gadgetFields() [][]string {
	return [][]string{
		{`"replicas":1`, `"replicas":2`, `"replicas":3`, `"replicas":9`, `"replicas":101`, `"replicas":-1`, `"replicas":"1"`, `"replicas":1.5`, `"replicas":null`, `"replicas":2.0`},
		{`"minimum":0`, `"minimum":2`, `"minimum":null`},
		{`"ratio":0.5`, `"ratio":0`, `"ratio":1`, `"ratio":-2.25`},
		{`"note":"abc"`, `"note":"xyz"`, `"note":null`, `"note":"A"`, `"note":"0123456789x"`, `"note":5`},
		{`"zone":"a"`, `"zone":"a"`, `"zone":"b"`, `"zone":null`},
		{`"host":"10.0.0.1"`, `"host":"example.com"`},
		{`"started":"2020-01-01T00:00:00Z"`, `"started":"today"`},
		{`"port":80`, `"port":"http"`, `"port":true`, `"port":1.5`},
		{`"enabled":true`, `"enabled":false`, `"enabled":"yes"`},
		{`"tags":["a"]`, `"tags":["b","c"]`, `"tags":["a","b"]`, `"tags":["a","a"]`, `"tags":[]`, `"tags":["1","2","3","4","5","6"]`, `"tags":"a"`, `"tags":null`},
		{
			`"parts":[{"name":"x"}]`, `"parts":[{"name":"x","weight":7},{"name":"y","note":"n"}]`, `"parts":[{"name":"y"},{"name":"x","side":"right"}]`,
			`"parts":[{"name":"x"},{"name":"x"}]`, `"parts":[{"side":"left"}]`, `"parts":[{"name":"x","weight":60}]`, `"parts":[{"name":"heavy","weight":60}]`,
			`"parts":[{"name":"x","unknown":1}]`, `"parts":[]`, `"parts":[{"name":"x","weight":null}]`, `"parts":[null]`,
		},
		{`"order":["a","b"]`, `"order":["b"]`, `"order":[]`, `"order":["a",1]`},
		{`"matrix":[[1,2],[3]]`, `"matrix":[[]]`, `"matrix":[["x"]]`},
		{`"labels":{"a":"1"}`, `"labels":{"b":"2","c":"3"}`, `"labels":{"a":"1","b":"2","c":"3","d":"4"}`, `"labels":{"a":"longer than ten"}`, `"labels":{"a":null}`, `"labels":{}`},
		{`"limits":{"memory":"1Gi"}`, `"limits":{"deep":{}}`, `"limits":{"deep":{"level":1,"text":"t","more":1}}`, `"limits":{"cpu":null}`, `"limits":null`, `"limits":{"cpu":2}`},
		{`"source":{"repo":"a"}`, `"source":{"repo":"b","branch":"dev"}`, `"source":{}`, `"source":{"tag":"v1"}`},
		{`"free":{"known":1,"other":{"a":[1,null]}}`, `"free":{"other":"x"}`, `"free":{"known":"x"}`, `"free":{}`, `"free":{"number":2.0,"none":null}`},
		{
			`"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"unknown":1},"spec":{"x":1}}`,
			`"template":{"apiVersion":"v1","kind":"Pod"}`, `"template":{"kind":"Pod"}`, `"template":{}`, `"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"Not valid"}}`,
			`"template":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":1}}}`, `"template":{"apiVersion":"a/b/c","kind":"Pod"}`,
		},
		{`"strict":{"apiVersion":"v1","kind":"X","spec":{"size":1,"more":2}}`, `"strict":{"apiVersion":"v1","kind":"X","metadata":{"name":"s","finalizers":["f"]},"data":1}`},
		{`"choice":{"left":1}`, `"choice":{"right":1}`, `"choice":{}`, `"choice":{"left":1,"right":1}`},
		{`"added":"value"`, `"added":5`},
		{`"unknown":1`, `"unknown":{"a":"b"}`},
	}
}

func gadgetSpec(g *generator) string {
	switch g.IntN(40) {
	case 0:
		return pick(g, `{}`, `null`, `[]`, `"text"`, `{"color":null}`)
	case 1:
		return `{"color":"pink"}`
	}
	parts := []string{`"color":"` + pick(g, "red", "red", "green") + `"`}
	all := gadgetFields()
	used := map[int]bool{}
	for g.IntN(5) > 0 {
		i := g.IntN(len(all))
		if used[i] {
			continue
		}
		used[i] = true
		values := all[i]
		n := len(values)
		if g.IntN(4) > 0 {
			n = (n + 1) / 2 // the first ones are valid
		}
		parts = append(parts, values[g.IntN(n)])
	}
	return `{` + strings.Join(parts, ",") + `}`
}

func gadgetStatus(g *generator) string {
	return pick(g, `{}`, `{"phase":"Ready"}`, `{"phase":"Pending","replicas":2,"selector":"a=b"}`, `{"replicas":-1}`, `{"phase":"Wrong"}`, `{"replicas":3,"observed":null}`,
		`{"conditions":[{"type":"A","status":"True"}]}`, `{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"False","message":"m"}]}`,
		`{"conditions":[{"type":"A","status":"True"},{"type":"A","status":"False"}]}`, `{"conditions":[{"type":"A"}]}`, `{"unknown":1}`, `null`, `"text"`, `{"selector":5}`)
}

func gadgetPatch(g *generator, media string) string {
	all := gadgetFields()
	values := all[g.IntN(len(all))]
	value := pick(g, values...)
	if media != "json-patch" {
		return pick(g, `{"spec":{`+value+`}}`, `{"spec":{`+value+`}}`, `{"spec":{`+value+`}}`, `{"status":`+gadgetStatus(g)+`}`, `{"spec":{"color":"blue"}}`,
			`{"spec":{"zone":null,"limits":{"cpu":"2"}}}`)
	}
	name, content, _ := strings.Cut(value, ":")
	return "[" + pick(g,
		`{"op":"add","path":"/spec/`+strings.Trim(name, `"`)+`","value":`+content+`}`,
		`{"op":"add","path":"/spec/`+strings.Trim(name, `"`)+`","value":`+content+`}`,
		`{"op":"remove","path":"/spec/`+strings.Trim(name, `"`)+`"}`,
		`{"op":"add","path":"/spec/parts/-","value":{"name":"added"}}`,
		`{"op":"replace","path":"/spec/parts/0/weight","value":9}`,
		`{"op":"remove","path":"/spec/tags/0"}`,
		`{"op":"add","path":"/status","value":`+gadgetStatus(g)+`}`,
	) + "]"
}

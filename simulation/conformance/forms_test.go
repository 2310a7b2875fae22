package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// form is a form of requests or responses, with the least number of 1,000 operations that have it. directed returns
// operations on a built-in kind of which the last has it. It is used if random operations have not reached the minimum.
type form struct {
	name        string
	perThousand int
	matches     func(o operation, response string) bool
	directed    func(d *director) []operation
}

// shortfall returns how many operations the form still needs.
func (f form) shortfall(r *runner, operations int) int {
	if operations < fullLength {
		return 0
	}
	return max(0, f.perThousand*operations/1000-r.forms[f.name])
}

func forms() []form {
	successful := func(response string) bool { return strings.HasPrefix(response, "20") }
	protobuf := func(response string) bool {
		return successful(response) && strings.Contains(firstLine(response), "protobuf")
	}
	return []form{
		{name: "body in protobuf", perThousand: 7, matches: func(o operation, response string) bool {
			return isProtobuf(o.header["Content-Type"]) && successful(response)
		}},
		{name: "body in YAML", perThousand: 4, matches: func(o operation, response string) bool {
			return o.header["Content-Type"] == "application/yaml" && successful(response)
		}},
		{name: "response in protobuf", perThousand: 10, matches: func(o operation, response string) bool {
			return !o.watch && protobuf(response)
		}, directed: func(d *director) []operation {
			o := pick(d.generator, d.operation(http.MethodGet, d.name, ""), d.list(http.MethodGet, ""), d.operation(http.MethodDelete, d.name, ""))
			o.header["Accept"] = "application/vnd.kubernetes.protobuf"
			return append(d.existing(), o)
		}},
		{name: "watch in protobuf", perThousand: 1, matches: func(o operation, response string) bool { return o.watch && protobuf(response) }},
		{name: "metadata only", perThousand: 10, matches: func(o operation, response string) bool {
			return strings.Contains(o.header["Accept"], "as=PartialObjectMetadata") && successful(response)
		}},
		{name: "dry run", perThousand: 5, matches: func(o operation, response string) bool {
			return strings.Contains(o.query+o.body, "dryRun") && o.method != http.MethodGet && successful(response)
		}},
		{name: "subresource", perThousand: 10, matches: func(o operation, response string) bool {
			return o.subresource != "" && successful(response)
		}},
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func (r *runner) countForms(o operation, response string) {
	for _, f := range forms() {
		if f.matches(o, response) {
			r.forms[f.name]++
		}
	}
}

// missingForms returns the forms that too few operations had. Only some kinds have them.
func (r *runner) missingForms(operations int) []string {
	var problems []string
	for _, f := range forms() {
		if n := f.shortfall(r, operations); n > 0 {
			problems = append(problems, fmt.Sprintf("%s: %d operations, at least %d", f.name, r.forms[f.name], r.forms[f.name]+n))
		}
	}
	return slices.Sorted(slices.Values(problems))
}

// directedForms returns operations that fill up the forms.
func (r *runner) directedForms(g *generator, kinds []*kind, operations int) []operation {
	builtins := slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return k.definition != "" || k.alone != nil })
	var ops []operation
	for _, f := range forms() {
		if f.directed == nil || len(builtins) == 0 {
			continue
		}
		for range f.shortfall(r, operations) {
			ops = append(ops, f.directed(newDirector(g, pick(g, builtins...)))...)
		}
	}
	return ops
}

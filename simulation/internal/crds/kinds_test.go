package crds_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
)

const gadgetsPath = "/apis/conformance.evenkeel.dev/v1/namespaces/default/gadgets"

// gadgets returns a definition with a rich schema.
func gadgets(tb testing.TB) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	text, err := os.ReadFile("testdata/gadgets.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		tb.Fatal(err)
	}
	return crd
}

func newServer(tb testing.TB, crd *apiextensionsv1.CustomResourceDefinition) *apiserver.Server {
	tb.Helper()
	kinds, err := new(crds.Compiler).Kinds(crd, nil)
	if err != nil {
		tb.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Config{Kinds: kinds, NamespacesExist: true})
	if err != nil {
		tb.Fatal(err)
	}
	return server
}

// exchange makes a request with a YAML body.
func exchange(tb testing.TB, s *apiserver.Server, method, path, media, body string) (int, http.Header, []byte) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, "http://apiserver.invalid"+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", media)
	res, err := s.Transport().RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, res.Header, text
}

const v2Path = "/apis/conformance.evenkeel.dev/v2/namespaces/default/gadgets"

// step is a request for the gadget a, and its response.
type step struct {
	verb string // create, update, merge, apply, status, get; with the suffix v2 for the other version
	// body is the YAML of the object without kind and name, or of a merge patch.
	body string
	// want is the YAML of the spec, or with status of the status, or the message of an error.
	want string
	// warnings are expected in the header.
	warnings []string
}

func (s step) run(t *testing.T, server *apiserver.Server) {
	t.Helper()
	method, path, media := http.MethodPost, gadgetsPath, "application/yaml"
	verb, other := strings.CutSuffix(s.verb, " v2")
	version := "v1"
	if other {
		version, path = "v2", v2Path
	}
	if verb != "create" {
		path += "/a"
	}
	body := s.body
	if verb != "get" && verb != "merge" {
		body = "apiVersion: conformance.evenkeel.dev/" + version + "\nkind: Gadget\nmetadata: {name: a}\n" + body
	}
	switch verb {
	case "get":
		method = http.MethodGet
	case "update":
		method = http.MethodPut
		body = strings.Replace(body, "{name: a}", "{name: a, resourceVersion: \""+currentVersion(t, server)+"\"}", 1)
	case "merge":
		method, media = http.MethodPatch, "application/merge-patch+json"
	case "apply":
		method, media, path = http.MethodPatch, "application/apply-patch+yaml", path+"?fieldManager=m1"
	case "status":
		method, media, path = http.MethodPatch, "application/merge-patch+json", path+"/status"
		body = s.body
	}
	if media == "application/merge-patch+json" {
		text, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		body = string(text)
	}
	code, header, text := exchange(t, server, method, path, media, body)
	var response struct {
		Message      string
		Spec, Status any
	}
	if err := yaml.Unmarshal(text, &response); err != nil {
		t.Fatal(err)
	}
	if code >= http.StatusBadRequest {
		if response.Message != s.want {
			t.Errorf("%s %s:\ngot   %s\nwant  %s", s.verb, s.body, response.Message, s.want)
		}
		return
	}
	got, want := response.Spec, any(nil)
	if verb == "status" {
		got = response.Status
	}
	if err := yaml.Unmarshal([]byte(s.want), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s %s (-want +got):\n%s", s.verb, s.body, diff)
	}
	if diff := cmp.Diff(s.warnings, header.Values("Warning")); diff != "" {
		t.Errorf("warnings of %s %s (-want +got):\n%s", s.verb, s.body, diff)
	}
}

func currentVersion(t *testing.T, server *apiserver.Server) string {
	t.Helper()
	_, _, text := exchange(t, server, http.MethodGet, gadgetsPath+"/a", "application/yaml", "")
	var object struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object.Metadata.ResourceVersion
}

// The messages of these tests are those of the real server, with which the module's conformance tests compare.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	const invalid = `Gadget.conformance.evenkeel.dev "a" is invalid: `
	const defaults = `replicas: 1, enabled: true, limits: {cpu: "1"}`
	for name, steps := range map[string][]step{
		"defaults, also in lists and nested objects": {
			{verb: "create", body: "spec: {color: red, parts: [{name: x}], limits: {deep: {}}}", want: `{color: red, replicas: 1, enabled: true,
				parts: [{name: x, side: left, weight: 5}], limits: {cpu: "1", deep: {level: 3}}}`},
		},
		"null gets a default unless it is nullable": {
			{verb: "create", body: "spec: {color: red, replicas: null, note: null, zone: null}", want: `{color: red, note: null, ` + defaults + `}`},
		},
		"unknown fields are pruned with a warning": {
			{
				verb: "create", body: "spec: {color: red, a: 1, template: {apiVersion: v1, kind: X, metadata: {name: x, b: 1}, c: 1}, free: {d: 1}}",
				want:     `{color: red, ` + defaults + `, template: {apiVersion: v1, kind: X, metadata: {name: x}, c: 1}, free: {d: 1}}`,
				warnings: []string{`299 - "unknown field \"spec.a\""`, `299 - "unknown field \"spec.template.metadata.b\""`},
			},
		},
		"schema": {
			{verb: "create", body: "spec: {color: pink, note: B, host: x, ratio: 1, choice: {}}", want: invalid +
				`[<nil>: Invalid value: "": "spec.choice" must validate one and only one schema (oneOf). Found none valid, ` +
				`spec.choice.left: Required value, ` +
				`spec.color: Unsupported value: "pink": supported values: "red", "green", "blue", ` +
				`spec.host: Invalid value: "x": spec.host in body must be of type ipv4: "x", ` +
				`spec.note: Invalid value: "B": spec.note in body should be at least 2 chars long, ` +
				`spec.ratio: Invalid value: 1: spec.ratio in body should be less than 1, ` +
				`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
			{verb: "create", body: "", want: invalid + `[spec: Required value, ` +
				`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		},
		"int or string": {
			{verb: "create", body: "spec: {color: red, port: http}", want: `{color: red, port: http, ` + defaults + `}`},
			{verb: "merge", body: "spec: {port: 80}", want: `{color: red, port: 80, ` + defaults + `}`},
			{verb: "merge", body: "spec: {port: true}", want: invalid + `[<nil>: Invalid value: "": "spec.port" must validate at least one schema (anyOf), spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean", ` +
				`spec.port: Invalid value: "boolean": spec.port in body must be of type integer: "boolean", ` +
				`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		},
		"duplicates in sets and maps": {
			{verb: "create", body: "spec: {color: red, tags: [a, a], parts: [{name: x}, {name: x, side: right}, {name: x, side: left}]}", want: invalid +
				`[spec.parts[2]: Duplicate value: {"name":"x","side":"left"}, spec.tags[1]: Duplicate value: "a"]`},
		},
		"rules": {
			{verb: "create", body: "spec: {color: red, minimum: 3, parts: [{name: x, weight: 70}]}", want: invalid +
				`[spec.minimum: Invalid value: minimum must not exceed replicas, spec.parts[0]: Invalid value: only heavy parts weigh 50 or more]`},
		},
		"transition rules": {
			{verb: "create", body: "spec: {color: red, zone: a, replicas: 9}", want: `{color: red, zone: a, replicas: 9, enabled: true, limits: {cpu: "1"}}`},
			{verb: "merge", body: "spec: {zone: b}", want: invalid + `spec.zone: Invalid value: "b": zone is immutable`},
			{verb: "merge", body: "spec: {zone: null}", want: invalid + `spec: Forbidden: zone a cannot be removed`},
			{verb: "merge", body: "spec: {replicas: 3}", want: invalid + `spec: Invalid value: replicas may shrink by at most 5`},
			{verb: "merge", body: "spec: {replicas: 4}", want: `{color: red, zone: a, replicas: 4, enabled: true, limits: {cpu: "1"}}`},
		},
		"status": {
			{verb: "create", body: "spec: {color: red}\nstatus: {phase: Ready}", want: `{color: red, ` + defaults + `}`},
			{verb: "status", body: "spec: {color: blue}\nstatus: {phase: Ready}", want: `{phase: Ready, observed: 0}`},
			{verb: "status", body: "status: {phase: Wrong, replicas: -1}", want: invalid + `[status.phase: Unsupported value: "Wrong": supported values: "Pending", "Ready", ` +
				`.status.replicas: Invalid value: -1: should be a non-negative integer, ` +
				`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
			{verb: "get", want: `{color: red, ` + defaults + `}`},
		},
		"apply merges lists by their keys": {
			{verb: "create", body: "spec: {color: red, parts: [{name: x, note: kept}], tags: [a], order: [a]}", want: `{color: red, ` + defaults + `,
				parts: [{name: x, side: left, weight: 5, note: kept}], tags: [a], order: [a]}`},
			{verb: "apply", body: "spec: {parts: [{name: z}, {name: x, weight: 5}], tags: [b]}", want: `{color: red, ` + defaults + `,
				parts: [{name: z, side: left, weight: 5}, {name: x, side: left, weight: 5, note: kept}], tags: [a, b], order: [a]}`},
			{verb: "apply", body: "spec: {tags: [c]}", want: `{color: red, ` + defaults + `,
				parts: [{name: x, side: left, weight: 5, note: kept}], tags: [a, c], order: [a]}`},
			{verb: "apply", body: "spec: {strict: {apiVersion: v1, kind: X, metadata: {name: s}, spec: {size: 1}}}", want: `{color: red, ` + defaults + `,
				parts: [{name: x, side: left, weight: 5, note: kept}], tags: [a], order: [a], strict: {apiVersion: v1, kind: X, metadata: {name: s}, spec: {size: 1}}}`},
			{verb: "apply", body: "spec: {a: 1}", want: `failed to create typed patch object (/a; conformance.evenkeel.dev/v1, Kind=Gadget): .spec.a: field not declared in schema`},
		},
		"versions: fields and defaults of each": {
			{verb: "create", body: "spec: {color: red, zone: a}", want: `{color: red, zone: a, ` + defaults + `}`},
			{verb: "get v2", want: `{color: red, replicas: 1}`},
			{verb: "update v2", body: "spec: {color: red, replicas: 3}", want: `{color: red, replicas: 3}`},
			{verb: "get", want: `{color: red, replicas: 3, enabled: true, limits: {cpu: "1"}}`},
		},
		// The other version accepts what this one does not.
		"invalid values are tolerated if they do not change": {
			{verb: "create v2", body: "spec: {color: pink, replicas: 3, tags: [a, a]}", want: `{color: pink, replicas: 3, tags: [a, a]}`},
			{verb: "merge", body: "spec: {replicas: 4}", want: `{color: pink, replicas: 4, enabled: true, limits: {cpu: "1"}, tags: [a, a]}`},
			{verb: "merge", body: "spec: {color: black}", want: invalid + `[spec.color: Unsupported value: "black": supported values: "red", "green", "blue", ` +
				`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
			{verb: "merge", body: "spec: {color: red}", want: `{color: red, replicas: 4, enabled: true, limits: {cpu: "1"}, tags: [a, a]}`},
			{verb: "merge v2", body: "spec: {replicas: 300}", want: `{color: red, replicas: 300, tags: [a, a]}`},
			{verb: "merge", body: "spec: {tags: [b, c, c]}", want: `{color: red, replicas: 300, enabled: true, limits: {cpu: "1"}, tags: [b, c, c]}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t, gadgets(t))
			for _, s := range steps {
				s.run(t, server)
			}
		})
	}
}

// An object that was written through another version is stored without the defaults of this one, until its next write.
func TestDefaultsAreStoredByNextWrite(t *testing.T) {
	t.Parallel()
	server := newServer(t, gadgets(t))
	step{verb: "create v2", body: "spec: {color: red}", want: "{color: red, replicas: 2}"}.run(t, server)
	var versions []string
	for range 3 {
		versions = append(versions, currentVersion(t, server))
		exchange(t, server, http.MethodPatch, gadgetsPath+"/a", "application/merge-patch+json", "{}")
	}
	if versions[0] == versions[1] || versions[1] != versions[2] {
		t.Errorf("versions after patches that change nothing: %v; only the first one stores the defaults", versions)
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	server := newServer(t, gadgets(t))
	for _, body := range []string{"{name: a}\nspec: {color: red, replicas: 7}", "{name: b}\nspec: {color: blue}"} {
		exchange(t, server, http.MethodPost, gadgetsPath, "application/yaml", "apiVersion: conformance.evenkeel.dev/v1\nkind: Gadget\nmetadata: "+body)
	}
	for selector, want := range map[string]int{
		"spec.color=red": 1, "spec.color!=red": 1, "spec.replicas=7": 1, "spec.color=blue,spec.replicas=1": 1, "spec.color=green": 0, "metadata.name=a,spec.color=red": 1,
	} {
		_, _, text := exchange(t, server, http.MethodGet, gadgetsPath+"?fieldSelector="+selector, "application/json", "")
		var list struct{ Items []any }
		if err := yaml.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != want {
			t.Errorf("list with %s: %d objects, want %d", selector, len(list.Items), want)
		}
	}
	if code, _, text := exchange(t, server, http.MethodGet, gadgetsPath+"?fieldSelector=spec.note=x", "application/json", ""); code != http.StatusBadRequest ||
		!strings.Contains(string(text), "field label not supported: spec.note") {
		t.Errorf("list by a field that is not selectable: %d %s", code, text)
	}
}

// kubectl validates by the published schema: it must have the fields of the version, and those of all objects also in embedded
// resources.
func TestPublishedSchema(t *testing.T) {
	t.Parallel()
	s := newServer(t, gadgets(t))
	code, _, text := exchange(t, s, http.MethodGet, "/openapi/v3/apis/conformance.evenkeel.dev/v1", "", "")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	type schema struct {
		Type       string
		Properties map[string]schema
		Ref        string `json:"$ref"`
		AllOf      []schema
	}
	var document struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	all := document.Components.Schemas
	gadget := all["dev.evenkeel.conformance.v1.Gadget"]
	spec := gadget.Properties["spec"].Properties
	if got := spec["replicas"].Type; got != "integer" {
		t.Errorf("spec.replicas has the type %q", got)
	}
	for _, metadata := range []schema{gadget.Properties["metadata"], spec["template"].Properties["metadata"]} {
		ref := metadata.Ref
		if len(metadata.AllOf) > 0 {
			ref = metadata.AllOf[0].Ref
		}
		if _, exists := all[strings.TrimPrefix(ref, "#/components/schemas/")]; !exists {
			t.Errorf("no schema of metadata: %+v", metadata)
		}
	}
	for name, fieldType := range map[string]string{"apiVersion": "string", "kind": "string", "unknown": ""} {
		if got := spec["template"].Properties[name].Type; got != fieldType {
			t.Errorf("spec.template.%s has the type %q, want %q", name, got, fieldType)
		}
	}
}

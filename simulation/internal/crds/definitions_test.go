package crds_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func newDefinitionServer(tb testing.TB) *apiserver.Server {
	tb.Helper()
	server, err := apiserver.New(apiserver.Config{Kinds: []*apiserver.Kind{new(crds.Compiler).Definitions(nil)}, NamespacesExist: true})
	if err != nil {
		tb.Fatal(err)
	}
	return server
}

// The messages were recorded from the real server.
func TestDefinitionsAreValidatedLikeRealServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/definitions.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Definition json.RawMessage
		Message    string // empty: the definition is valid
		Spec       any
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	server := newDefinitionServer(t)
	for _, c := range cases {
		_, _, body := exchange(t, server, http.MethodPost, definitionsPath+"?dryRun=All", "application/json", string(c.Definition))
		var got struct {
			Message string
			Spec    any
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Message, got.Message); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Definition, diff)
		} else if diff := cmp.Diff(c.Spec, got.Spec); c.Message == "" && diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Definition, diff)
		}
	}
}

// send makes a request that succeeds, and decodes the response into into, unless it is nil.
func send(tb testing.TB, s *apiserver.Server, method, path, body string, into any) {
	tb.Helper()
	media := "application/yaml"
	if method == http.MethodPatch {
		media = "application/merge-patch+json"
	}
	code, _, text := exchange(tb, s, method, path, media, body)
	if code >= http.StatusBadRequest {
		tb.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(text, into); err != nil {
		tb.Fatal(err)
	}
}

func conditions(crd apiextensionsv1.CustomResourceDefinition) string {
	var all []string
	for _, c := range crd.Status.Conditions {
		all = append(all, string(c.Type)+"="+string(c.Status)+" "+c.Reason)
	}
	return strings.Join(all, ", ")
}

func TestDefinitionIsServedUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	text, err := os.ReadFile("testdata/gadgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, _ := exchange(t, server, http.MethodGet, gadgetsPath, "application/json", ""); code != http.StatusNotFound {
		t.Errorf("list before the definition exists: %d", code)
	}
	send(t, server, http.MethodPost, definitionsPath, string(text), nil)
	var crd apiextensionsv1.CustomResourceDefinition
	path := definitionsPath + "/gadgets.conformance.evenkeel.dev"
	send(t, server, http.MethodGet, path, "", &crd)
	if got, want := conditions(crd), "NamesAccepted=True NoConflicts, Established=True InitialNamesAccepted"; got != want {
		t.Errorf("conditions %s, want %s", got, want)
	}
	if diff := cmp.Diff(crd.Spec.Names, crd.Status.AcceptedNames); diff != "" {
		t.Errorf("accepted names: %s", diff)
	}
	const gadget = "apiVersion: conformance.evenkeel.dev/v1\nkind: Gadget\nmetadata: {name: a, finalizers: [example.com/a]}\nspec: {color: red}"
	send(t, server, http.MethodPost, gadgetsPath, gadget, nil)

	// A new default is in stored objects, without a write.
	change := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/extra","value":{"type":"string","default":"x"}}]`
	if code, _, text := exchange(t, server, http.MethodPatch, path, "application/json-patch+json", change); code != http.StatusOK {
		t.Fatalf("change of the schema: %d %s", code, text)
	}
	var object struct {
		Metadata struct{ ResourceVersion string }
		Spec     map[string]any
	}
	send(t, server, http.MethodGet, gadgetsPath+"/a", "", &object)
	if diff := cmp.Diff(map[string]any{"color": "red", "replicas": 1.0, "enabled": true, "limits": map[string]any{"cpu": "1"}, "extra": "x"}, object.Spec); diff != "" {
		t.Errorf("object after a change of the schema (-want +got):\n%s", diff)
	}

	// A deletion waits for the finalizers of custom resources.
	fork := server.Fork()
	send(t, server, http.MethodDelete, path, "", nil)
	send(t, server, http.MethodGet, path, "", &crd)
	if got := conditions(crd); !strings.HasSuffix(got, "Terminating=True InstanceDeletionInProgress") {
		t.Errorf("conditions %s", got)
	}
	code, _, body := exchange(t, server, http.MethodPost, gadgetsPath, "application/yaml", strings.Replace(gadget, "name: a", "name: b", 1))
	if want := `gadgets.conformance.evenkeel.dev "b" is forbidden: create not allowed while custom resource definition is terminating`; code != http.StatusForbidden || !strings.Contains(string(body), strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("create in a terminating definition: %d %s", code, body)
	}
	send(t, server, http.MethodPatch, gadgetsPath+"/a", `{"metadata":{"finalizers":null}}`, nil)
	for _, gone := range []string{path, gadgetsPath} {
		if code, _, _ := exchange(t, server, http.MethodGet, gone, "application/json", ""); code != http.StatusNotFound {
			t.Errorf("%s after the deletion: %d", gone, code)
		}
	}
	send(t, fork, http.MethodGet, gadgetsPath+"/a", "", nil)
	send(t, fork, http.MethodPost, gadgetsPath, strings.Replace(gadget, "name: a", "name: b", 1), nil)
}

func TestConflictingNamesAreAcceptedWhenFree(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	create := func(plural string) {
		send(t, server, http.MethodPost, definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"`+plural+`.ex.com"},
			"spec":{"group":"ex.com","scope":"Namespaced","names":{"plural":"`+plural+`","kind":"Foo","shortNames":["f"]},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, nil)
	}
	create("foos")
	create("foozs")
	var crd apiextensionsv1.CustomResourceDefinition
	send(t, server, http.MethodGet, definitionsPath+"/foozs.ex.com", "", &crd)
	if got, want := conditions(crd), "NamesAccepted=False ListKindConflict, Established=False NotAccepted"; got != want {
		t.Errorf("conditions %s, want %s", got, want)
	}
	if got := crd.Status.AcceptedNames; got.Plural != "foozs" || got.Kind != "" || len(got.ShortNames) > 0 {
		t.Errorf("accepted names: %v", got)
	}
	send(t, server, http.MethodDelete, definitionsPath+"/foos.ex.com", "", nil)
	send(t, server, http.MethodGet, definitionsPath+"/foozs.ex.com", "", &crd)
	if got, want := conditions(crd), "NamesAccepted=True NoConflicts, Established=True InitialNamesAccepted"; got != want {
		t.Errorf("conditions %s, want %s", got, want)
	}
	send(t, server, http.MethodGet, "/apis/ex.com/v1/foozs", "", nil)
}

// definitionOf returns a definition of foos.ex.com with these versions, in JSON without schemas.
func definitionOf(versions ...string) string {
	for i, v := range versions {
		versions[i] = `{"schema":{"openAPIV3Schema":{"type":"object"}},` + v + `}`
	}
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"foos.ex.com"},
		"spec":{"group":"ex.com","scope":"Namespaced","names":{"plural":"foos","kind":"Foo"},"versions":[` + strings.Join(versions, ",") + `]}}`
}

func TestDeletedDefinitionDeletesUnservedObjects(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	send(t, server, http.MethodPost, definitionsPath, definitionOf(`"name":"v1","served":false,"storage":true`, `"name":"v2","served":true,"storage":false`), nil)
	for _, metadata := range []string{`{"name":"a"}`, `{"name":"b","finalizers":["ex.com/f"]}`} {
		send(t, server, http.MethodPost, "/apis/ex.com/v2/namespaces/default/foos", `{"apiVersion":"ex.com/v2","kind":"Foo","metadata":`+metadata+`}`, nil)
	}
	path := definitionsPath + "/foos.ex.com"
	send(t, server, http.MethodDelete, path, "", nil)
	send(t, server, http.MethodGet, path, "", nil) // waits for the finalizer of b
	send(t, server, http.MethodPatch, "/apis/ex.com/v2/namespaces/default/foos/b", `{"metadata":{"finalizers":null}}`, nil)
	if code, _, _ := exchange(t, server, http.MethodGet, path, "application/json", ""); code != http.StatusNotFound {
		t.Errorf("definition without objects: %d", code)
	}
}

func TestObjectsStayWhileNoVersionIsServed(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	const objects, path = "/apis/ex.com/v1/namespaces/default/foos", definitionsPath + "/foos.ex.com"
	versions := func(served bool) string {
		return fmt.Sprintf(`{"spec":{"versions":[{"name":"v1","served":%t,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, served)
	}
	expect := func(path string, want int) {
		t.Helper()
		if code, _, text := exchange(t, server, http.MethodGet, path, "application/json", ""); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
	}
	create := func() {
		t.Helper()
		send(t, server, http.MethodPost, definitionsPath, definitionOf(`"name":"v1","served":true,"storage":true`), nil)
		for _, metadata := range []string{`{"name":"a"}`, `{"name":"b","finalizers":["ex.com/f"]}`} {
			send(t, server, http.MethodPost, objects, `{"apiVersion":"ex.com/v1","kind":"Foo","metadata":`+metadata+`}`, nil)
		}
		send(t, server, http.MethodPatch, path, versions(false), nil)
		expect(objects+"/a", http.StatusNotFound)
	}
	create()
	send(t, server, http.MethodPatch, path, versions(true), nil)
	expect(objects+"/a", http.StatusOK)
	send(t, server, http.MethodPatch, path, versions(false), nil)

	send(t, server, http.MethodDelete, path, "", nil) // deletes a, and waits for the finalizer of b
	expect(path, http.StatusOK)
	expect(objects+"/b", http.StatusNotFound)
	send(t, server, http.MethodPatch, path, versions(true), nil)
	expect(objects+"/a", http.StatusNotFound)
	expect(objects+"/b", http.StatusOK)
	send(t, server, http.MethodPatch, objects+"/b", `{"metadata":{"finalizers":null}}`, nil)
	expect(path, http.StatusNotFound)
	create() // with new objects of the same names
}

func TestDeprecatedVersionsHaveWarnings(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	send(t, server, http.MethodPost, definitionsPath, definitionOf(
		`"name":"v1alpha1","served":true,"storage":false,"deprecated":true`, `"name":"v1beta1","served":true,"storage":false,"deprecated":true,"deprecationWarning":"old"`,
		`"name":"v1beta2","served":true,"storage":false`, `"name":"v1","served":true,"storage":true`, `"name":"v2","served":true,"storage":false,"deprecated":true`), nil)
	for version, want := range map[string][]string{
		"v1alpha1": {`299 - "ex.com/v1alpha1 Foo is deprecated; use ex.com/v1 Foo"`}, "v1beta1": {`299 - "old"`}, "v1": nil,
		"v2": {`299 - "ex.com/v2 Foo is deprecated"`},
	} {
		for _, path := range []string{"foos", "namespaces/default/foos/missing"} {
			_, header, _ := exchange(t, server, http.MethodGet, "/apis/ex.com/"+version+"/"+path, "application/json", "")
			if diff := cmp.Diff(want, header.Values("Warning")); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", path, version, diff)
			}
		}
	}
}

func TestDefinitionDoesNotReplaceBuiltinKind(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	const name = "customresourcedefinitions.apiextensions.k8s.io"
	send(t, server, http.MethodPost, definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"`+name+`",
		"annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},
		"spec":{"group":"apiextensions.k8s.io","scope":"Cluster","names":{"plural":"customresourcedefinitions","kind":"Foo"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, nil)
	var crd apiextensionsv1.CustomResourceDefinition
	send(t, server, http.MethodGet, definitionsPath+"/"+name, "", &crd)
	if crd.Kind != "CustomResourceDefinition" {
		t.Errorf("kind %s", crd.Kind)
	}
	// The objects of the built-in kind, other definitions here, are not those of the deleted definition.
	send(t, server, http.MethodPost, definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"bars.example.com"},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"bars","kind":"Bar"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, nil)
	send(t, server, http.MethodDelete, definitionsPath+"/"+name, "", nil)
	var left apiextensionsv1.CustomResourceDefinitionList
	send(t, server, http.MethodGet, definitionsPath, "", &left)
	if len(left.Items) != 1 || left.Items[0].Name != "bars.example.com" || left.Items[0].DeletionTimestamp != nil {
		t.Errorf("after the deletion: %v", left.Items)
	}
}

// A list has the kind of the definition, also after a change of it. An object of another kind is named by its own kind.
func TestListKind(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	const objects, path = "/apis/ex.com/v1/namespaces/default/foos", definitionsPath + "/foos.ex.com"
	send(t, server, http.MethodPost, definitionsPath, definitionOf(`"name":"v1","served":true,"storage":true`), nil)
	var a struct {
		Metadata struct{ ResourceVersion string }
	}
	send(t, server, http.MethodPost, objects, `{"apiVersion":"ex.com/v1","kind":"Foo","metadata":{"name":"a"}}`, &a)
	for _, want := range []string{"FooList", "FooItems"} {
		send(t, server, http.MethodPatch, path, `{"spec":{"names":{"listKind":"`+want+`"}}}`, nil)
		var list struct{ Kind string }
		if send(t, server, http.MethodGet, objects, "", &list); list.Kind != want {
			t.Errorf("kind %s, want %s", list.Kind, want)
		}
	}
	code, _, text := exchange(t, server, http.MethodPut, objects+"/a", "application/json", `{"apiVersion":"ex.com/v1","kind":"FooItems","metadata":{"name":"a","resourceVersion":"`+a.Metadata.ResourceVersion+`"}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(string(text), `FooItems.ex.com \"a\" is invalid: kind: Invalid value: \"FooItems\": must be Foo`) {
		t.Errorf("another kind: %d %s", code, text)
	}
}

func TestInvalidDefinitions(t *testing.T) {
	t.Parallel()
	const open = `{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","additionalProperties":true}}}},` +
		`"selectableFields":[{"jsonPath":".spec.a.b"}]}`
	const withDefault = `{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer","default":1}}}}}}}`
	for name, c := range map[string]struct{ spec, message string }{
		"a selectable field of any value": {`"versions":[` + open + `]`, "is an invalid path: does not refer to a valid field"},
		"defaults beside unknown fields":  {`"versions":[` + withDefault + `],"preserveUnknownFields":true`, "must be false in order to use defaults in the schema"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition := `{"metadata":{"name":"foos.ex.com"},"spec":{"group":"ex.com","scope":"Namespaced","names":{"plural":"foos","kind":"Foo"},` + c.spec + `}}`
			code, _, text := exchange(t, newDefinitionServer(t), http.MethodPost, definitionsPath, "application/json", definition)
			if code != http.StatusUnprocessableEntity || !strings.Contains(string(text), c.message) {
				t.Errorf("%d %s", code, text)
			}
		})
	}
}

// A deleted definition whose custom resources are deleted, and which stays because of another finalizer, accepts new ones.
func TestCreateAfterInstancesAreDeleted(t *testing.T) {
	t.Parallel()
	server := newDefinitionServer(t)
	definition := strings.Replace(definitionOf(`"name":"v1","served":true,"storage":true`), `"metadata":{`, `"metadata":{"finalizers":["ex.com/f"],`, 1)
	send(t, server, http.MethodPost, definitionsPath, definition, nil)
	send(t, server, http.MethodDelete, definitionsPath+"/foos.ex.com", "", nil)
	send(t, server, http.MethodPost, "/apis/ex.com/v1/namespaces/default/foos", `{"apiVersion":"ex.com/v1","kind":"Foo","metadata":{"name":"a"}}`, nil)
}

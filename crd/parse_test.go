package crd_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/evenkeel-go/evenkeel/crd"
)

// websites is a definition in the format of code generators.
const websites = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.19.0
  creationTimestamp: null
  name: websites.shop.example.com
spec:
  group: shop.example.com
  names: {kind: Website, listKind: WebsiteList, plural: websites, singular: website}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, default: 0, minimum: 0}
              hosts: {type: array, items: {type: string}}
status:
  acceptedNames: {kind: "", plural: ""}
  conditions: null
  storedVersions: null
`

// bills is a definition in JSON.
const bills = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "bills.shop.example.com"},
"spec": {"group": "shop.example.com", "names": {"kind": "Bill", "plural": "bills"}, "scope": "Cluster",
"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := crd.Parse([]byte("# two of them\n" + websites + "---\n\n---\n# nothing\n---\n" + bills))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"websites.shop.example.com", "bills.shop.example.com"}, names(got)); diff != "" {
		t.Fatalf("the definitions (-want +got):\n%s", diff)
	}
	spec := got[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	replicas, hosts := spec.Properties["replicas"], spec.Properties["hosts"]
	if string(replicas.Default.Raw) != "0" || *replicas.Minimum != 0 || hosts.Items.Schema.Type != "string" {
		t.Errorf("the schema of replicas is %+v, of hosts %+v", replicas, hosts)
	}
}

func TestParseEmptyDocument(t *testing.T) {
	t.Parallel()
	got, err := crd.Parse([]byte("---\n# nothing here\n"))
	if err != nil || len(got) > 0 {
		t.Errorf("Parse returned %q, %v, want no definitions", names(got), err)
	}
}

func TestParseIsStrict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		documents string
		want      []string
	}{
		"invalid YAML":              {"a: [", []string{"document 1"}},
		"not an object":             {"- a", []string{"document 1", "not an object"}},
		"another kind":              {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n" + websites, []string{"document 1", `Service "web" of "v1"`, "want a CustomResourceDefinition of apiextensions.k8s.io/v1"}},
		"an old version":            {strings.Replace(websites, "k8s.io/v1", "k8s.io/v1beta1", 1), []string{`"apiextensions.k8s.io/v1beta1"`}},
		"errors of all documents":   {"kind: A\n---\nkind: B\n", []string{"document 1: found A", "document 2: found B"}},
		"an unknown field":          {strings.Replace(websites, "scope: Namespaced", "scope: Namespaced\n  shortNames: [web]", 1), []string{"websites.shop.example.com", "spec.shortNames"}},
		"a wrong case":              {strings.Replace(websites, "  scope: Namespaced", "  Scope: Namespaced", 1), []string{"spec.Scope"}},
		"unknown field in a schema": {strings.Replace(websites, "items: {type: string}", "items: {type: string, maxlength: 5}", 1), []string{"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.hosts.items.maxlength"}},
		"duplicate field":           {strings.Replace(websites, "  scope: Namespaced", "  scope: Namespaced\n  scope: Cluster", 1), []string{`"scope" already set`}},
		"a wrong type":              {strings.Replace(websites, "served: true", "served: yes please", 1), []string{"websites.shop.example.com"}},
		"missing separator":         {websites + bills + "---\n" + websites, []string{"document 1"}},
		"duplicate definition":      {websites + "---\n" + bills + "---\n" + websites, []string{"websites.shop.example.com occurs twice"}},
		"a wrong name":              {strings.Replace(websites, "name: websites.", "name: website.", 1), []string{`"websites.shop.example.com", <plural>.<group>`}},
		"invalid spec": {
			strings.NewReplacer("group: shop.example.com", "", "scope: Namespaced", "scope: ''", "storage: true", "storage: false").Replace(websites),
			[]string{"spec.group is required", "spec.scope", "no version has storage"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := crd.Parse([]byte(test.documents))
			if err == nil || got != nil {
				t.Fatalf("Parse returned %q", names(got))
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestParseFS(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"crds/websites.yaml": {Data: []byte(websites)},
		"crds/bills.json":    {Data: []byte(bills)},
		"crds/README.md":     {Data: []byte("# not a definition")},
		"more/again.yaml":    {Data: []byte(websites)},
		"bad/bad.yaml":       {Data: []byte("kind: Service")},
	}
	got, err := crd.ParseFS(files, "crds/*.yaml", "crds/*.json", "crds/web*")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bills.shop.example.com", "websites.shop.example.com"}, names(got)); diff != "" {
		t.Errorf("the definitions (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct {
		patterns []string
		want     string
	}{
		"no file":             {[]string{"crds/*.yml"}, `pattern "crds/*.yml": no file matches`},
		"invalid pattern":     {[]string{"["}, `pattern "["`},
		"one bad file":        {[]string{"crds/*.yaml", "bad/*"}, "file bad/bad.yaml"},
		"the same definition": {[]string{"crds/*.yaml", "more/*"}, "websites.shop.example.com occurs twice"},
	} {
		if got, err := crd.ParseFS(files, test.patterns...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: ParseFS returned %q, %v, want an error with %q", name, names(got), err, test.want)
		}
	}
}

func names(definitions []*apiextensionsv1.CustomResourceDefinition) []string {
	var names []string
	for _, d := range definitions {
		names = append(names, d.Name)
	}
	return names
}

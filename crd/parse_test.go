package crd_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/evenkeel-go/evenkeel/crd"
)

// websites is a definition as code generators write it.
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

// bills is another one, in JSON.
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

func TestParseOfNothing(t *testing.T) {
	t.Parallel()
	got, err := crd.Parse([]byte("---\n# nothing here\n"))
	if err != nil || len(got) > 0 {
		t.Errorf("it has %q, %v, want nothing", names(got), err)
	}
}

func TestParseIsStrict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		documents string
		want      []string
	}{
		"no YAML":                {"a: [", []string{"document 1"}},
		"no object":              {"- a", []string{"document 1", "no object"}},
		"another kind":           {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n" + websites, []string{"document 1", `Service "web" of "v1"`, "want a CustomResourceDefinition of apiextensions.k8s.io/v1"}},
		"an old version":         {strings.Replace(websites, "k8s.io/v1", "k8s.io/v1beta1", 1), []string{`"apiextensions.k8s.io/v1beta1"`}},
		"every document":         {"kind: A\n---\nkind: B\n", []string{"document 1: it is A", "document 2: it is B"}},
		"an unknown field":       {strings.Replace(websites, "scope: Namespaced", "scope: Namespaced\n  shortNames: [web]", 1), []string{"websites.shop.example.com", "spec.shortNames"}},
		"a wrong case":           {strings.Replace(websites, "  scope: Namespaced", "  Scope: Namespaced", 1), []string{"spec.Scope"}},
		"deep in a schema":       {strings.Replace(websites, "items: {type: string}", "items: {type: string, maxlength: 5}", 1), []string{"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.hosts.items.maxlength"}},
		"a field twice":          {strings.Replace(websites, "  scope: Namespaced", "  scope: Namespaced\n  scope: Cluster", 1), []string{`"scope" already set`}},
		"a wrong type":           {strings.Replace(websites, "served: true", "served: yes please", 1), []string{"websites.shop.example.com"}},
		"an end that is missing": {websites + bills + "---\n" + websites, []string{"document 1"}},
		"twice":                  {websites + "---\n" + bills + "---\n" + websites, []string{"websites.shop.example.com comes twice"}},
		"a wrong name":           {strings.Replace(websites, "name: websites.", "name: website.", 1), []string{`"websites.shop.example.com", <plural>.<group>`}},
		"mistakes inside": {
			strings.NewReplacer("group: shop.example.com", "", "scope: Namespaced", "scope: ''", "storage: true", "storage: false").Replace(websites),
			[]string{"spec.group is required", "spec.scope", "none with storage"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := crd.Parse([]byte(test.documents))
			if err == nil || got != nil {
				t.Fatalf("it was taken as %q", names(got))
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
		"no pattern":          {[]string{"["}, `pattern "["`},
		"one bad file":        {[]string{"crds/*.yaml", "bad/*"}, "file bad/bad.yaml"},
		"the same definition": {[]string{"crds/*.yaml", "more/*"}, "websites.shop.example.com comes twice"},
	} {
		if got, err := crd.ParseFS(files, test.patterns...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: it has %q, %v, want an error with %q", name, names(got), err, test.want)
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

package crds_test

import (
	"os"
	"testing"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestEnsure(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/gadgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crd.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.Connect(newDefinitionServer(t).RESTConfig("ensure"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "ensure"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second time, nothing is left to do
		if _, err := crd.Ensure(t.Context(), c, definitions); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
	schema := definitions[0].Spec.Versions[0].Schema.OpenAPIV3Schema
	schema.Properties["spec"].Properties["extra"] = schema.Properties["status"].Properties["selector"]
	if _, err := crd.Ensure(t.Context(), c, definitions); err != nil {
		t.Fatal(err)
	}
	if err := crd.Remove(t.Context(), c, definitions[0].Name); err != nil {
		t.Fatal(err)
	}
}

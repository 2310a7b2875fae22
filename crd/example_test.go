package crd_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
)

// A program installs its definitions before it starts its controllers.
func Example() {
	// In a program, definitions is an embed.FS: //go:embed crds/*.yaml
	definitions := fstest.MapFS{"crds/websites.yaml": {Data: []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: websites.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {kind: Website, plural: websites}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`)}}
	install := func(ctx context.Context, c *client.Client) error {
		crds, err := crd.ParseFS(definitions, "crds/*.yaml")
		if err != nil {
			return err
		}
		ensured, err := crd.Ensure(ctx, c, crds)
		if err != nil {
			return err
		}
		for _, e := range ensured {
			fmt.Println(e.Definition.Name, e.Outcome)
		}
		return nil
	}
	fmt.Println(install(context.Background(), nil)) // nil, because this example has no cluster
	// Output:
	// ensure definitions: the client is nil: client.New makes one
}

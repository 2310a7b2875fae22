package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// letters defines a kind with the versions v1 and v2, which have the same fields. %s is the storage version.
func letters(storage string) string {
	version := func(name string) string {
		return fmt.Sprintf(`{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, properties: {
			spec: {type: object, properties: {text: {type: string}}}}}}}`, name, name == storage)
	}
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: letters.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Letter, plural: letters}
  versions: [` + version("v1") + `, ` + version("v2") + `]
---
`
}

// Two replicas of a program migrate stored objects while their controller runs. The first one ends in the middle.
func TestManagersMigrateStorage(t *testing.T) {
	t.Parallel()
	const objects = 40
	manifests := letters("v1")
	for i := range objects {
		manifests += fmt.Sprintf("---\n{apiVersion: example.com/v1, kind: Letter, metadata: {name: l%d}, spec: {text: hello}}\n", i)
	}
	definitions, err := crd.Parse([]byte(letters("v2")))
	if err != nil {
		t.Fatal(err)
	}
	simulation.Test(t, simulation.Config{YAML: manifests}, func(t *testing.T, c *simulation.Cluster) {
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Letter"}
		handled := map[string]int{}
		run := func(identity string) (stop func()) {
			cluster := c.Connect("letters")
			writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "letters"})
			if err != nil {
				t.Fatal(err)
			}
			postman, err := controller.New(controller.Config[*unstructured.Unstructured]{
				Name:      "postman",
				Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: kind}),
				Handler: func(_ context.Context, letter *unstructured.Unstructured) error {
					handled[identity+letter.GetName()]++
					return nil
				},
				Workers: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			election := &leader.Config{Cluster: cluster, Namespace: "default", Name: "letters", Identity: identity}
			// region migration
			install := func(ctx context.Context) error {
				_, err := crd.Ensure(ctx, writer, definitions, crd.AcceptNewer())
				return err
			}
			migrate := func(ctx context.Context) error {
				_, err := crd.Migrate(ctx, writer, "letters.example.com", crd.Pace(2))
				return err
			}
			m, err := manager.New(manager.Config{
				LeaderElection: election,
				Runnables: []manager.Runnable{
					{Name: "definitions", Runner: manager.RunFunc(install), Group: manager.Caches, Task: true, OnFailure: manager.Restart},
					{Name: "storage migration", Runner: manager.RunFunc(migrate), OnFailure: manager.Continue},
					{Runner: postman},
				},
				IgnoreSignals: true,
			})
			// endregion
			if err != nil {
				t.Fatal(err)
			}
			return c.Run(m)
		}
		definition := func() *apiextensionsv1.CustomResourceDefinition {
			return simulation.Get[*apiextensionsv1.CustomResourceDefinition](c, "letters.example.com")
		}
		requests := c.Record(func() {
			stop := run("first")
			c.Advance(30 * time.Second) // the lease, the time until the mark, and a part of the objects
			run("second")
			c.Advance(5 * time.Second)
			if len(handled) != objects {
				t.Errorf("the first replica has handled %d objects while it migrates", len(handled))
			}
			stop()
			if stored := definition().Status.StoredVersions; len(stored) != 2 {
				t.Errorf("status.storedVersions is %q before the end", stored)
			}
			c.Advance(time.Minute)
		})
		if stored := definition().Status.StoredVersions; !slices.Equal(stored, []string{"v2"}) || len(definition().Annotations) > 0 {
			t.Errorf("status.storedVersions is %q, annotations %v", stored, definition().Annotations)
		}
		patches := map[string]int{}
		for _, r := range requests {
			if r.Verb == "patch" && r.Resource.Resource == "letters" {
				patches[r.Key.Name]++
			}
		}
		for i := range objects {
			if n := patches[fmt.Sprint("l", i)]; n != 1 {
				t.Errorf("letter %d was patched %d times", i, n)
			}
		}
	})
}

package operator

import (
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The definition of WebApps gets a new field while the operator, whose Go type does not know it,
// works. It goes on, and what users write into the field stays.
//
// Not parallel: at a change of a definition the API server ends its watches, and the test that
// counts requests at rest would see them begin again.
func TestWebappGoesOnWhenItsDefinitionGrows(t *testing.T) {
	w := newWorld(t)
	w.operate()
	w.create(w.app("shop"))
	w.untilReady("shop")

	definitions, err := crd.Parse(v1.CRD)
	if err != nil {
		t.Fatal(err)
	}
	spec := definitions[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties["tier"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	definitions[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	if _, err := crd.Ensure(t.Context(), w.client, definitions); err != nil {
		t.Fatal(err)
	}

	w.write("shop", `{"spec":{"tier":"gold","image":"shop:2","host":"store.example.com"}}`)
	w.untilReady("shop")
	w.check("shop", "shop:2", map[string]string{"GREETING": "hello"})
	w.create(w.app("later")) // the watch goes on
	w.write("later", `{"spec":{"host":null,"tier":"silver"}}`)
	w.untilReady("later")
	for name, want := range map[string]string{"shop": "gold", "later": "silver"} {
		if got := w.tier(name); got != want {
			t.Errorf("the tier of %s is %q, want %q: the operator has written what it does not know", name, got, want)
		}
	}
	w.delete("shop")
	w.until("its record is gone", func() error {
		if left := w.records.all(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// write changes a WebApp as somebody who knows fields that this program does not know.
func (w *world) write(name, patch string) {
	w.Helper()
	app := &v1.WebApp{}
	app.Namespace, app.Name = w.namespace, name
	w.until("the patch is accepted", func() error {
		_, err := client.Patch(w.Context(), w.client, app, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldValidation("Strict"))
		return err
	})
}

func (w *world) tier(name string) string {
	w.Helper()
	app, err := client.Get[*unstructured.Unstructured](w.Context(), w.client, kube.Key{Namespace: w.namespace, Name: name},
		client.OfKind(schema.GroupVersionKind{Group: v1.Group, Version: v1.Version, Kind: v1.Kind}))
	if err != nil {
		w.Fatal(err)
	}
	tier, _, err := unstructured.NestedString(app.Object, "spec", "tier")
	if err != nil {
		w.Fatal(fmt.Errorf("read spec.tier: %w", err))
	}
	return tier
}

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

// The definition of WebApps gets a new field, which the operator's Go type does not have, while the operator runs. It
// must keep working, and users' values of the field must stay.
//
// Not parallel: the API server ends its watches when a definition changes, and the test that counts requests of an idle
// operator would count new watches.
func TestWebappWithUnknownField(t *testing.T) {
	everywhere(t, func(w *world) {
		w.operateUntilReady("shop")

		definitions, err := crd.Parse(v1.CRD)
		if err != nil {
			w.Fatal(err)
		}
		spec := definitions[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		spec.Properties["tier"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		definitions[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
		if _, err := crd.Ensure(w.Context(), w.client, definitions); err != nil {
			w.Fatal(err)
		}

		w.write("shop", `{"spec":{"tier":"gold","image":"shop:2","host":"store.example.com"}}`)
		w.untilReady("shop")
		w.check("shop", "shop:2", map[string]string{"GREETING": "hello"})
		w.create(w.app("later")) // the watch works
		w.write("later", `{"spec":{"host":null,"tier":"silver"}}`)
		w.untilReady("later")
		for name, want := range map[string]string{"shop": "gold", "later": "silver"} {
			if got := w.tier(name); got != want {
				w.Errorf("the tier of %s is %q, want %q: the operator has changed an unknown field", name, got, want)
			}
		}
		w.delete("shop")
		w.until("its record is gone", func() error {
			if left := w.records.all(); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
			return nil
		})
	})
}

// write changes a WebApp like a client that knows the new field.
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

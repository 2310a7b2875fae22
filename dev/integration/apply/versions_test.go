package apply

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/kube"
)

const relics = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: relics.apply.evenkeel.dev}
spec:
  group: apply.evenkeel.dev
  scope: Namespaced
  names: {kind: Relic, plural: relics, singular: relic, listKind: RelicList}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// Two former managers have written an object in two versions of its kind. Fields that were written in the version of
// the takeover are removed by the next apply, whichever manager wrote them, and in whatever order.
func TestTakeOverUsesCurrentVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	definitions := must(crd.Parse([]byte(relics)))(t)
	must(crd.Ensure(t.Context(), w.c, definitions))(t)
	relic := func(version, name string, spec map[string]any) *unstructured.Unstructured {
		return custom(w, schema.GroupVersionKind{Group: "apply.evenkeel.dev", Version: version, Kind: "Relic"}, name, spec)
	}
	write := func(obj *unstructured.Unstructured, manager, field string) {
		t.Helper()
		body := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{%q:1}}`, field))
		must(client.Patch(t.Context(), w.c, obj, body, client.FieldOwner(manager)))(t)
	}
	managers := []string{"older-operator", "old-operator"}
	for n := range 8 { // the order of managers was random
		for present, other := range map[string]string{"v1": "v1beta1", "v1beta1": "v1"} {
			name := fmt.Sprint(present, "-", n)
			first, second := relic(present, name, map[string]any{"a": 1}), relic(other, name, nil)
			must(client.Create(t.Context(), w.c, first, client.FieldOwner(managers[n%2])))(t)
			write(second, managers[n%2], "b")
			write(second, managers[(n+1)%2], "c")
			write(first, managers[(n+1)%2], "d")
			live := must(client.Get[*unstructured.Unstructured](t.Context(), w.c, kube.Key{Namespace: w.namespace, Name: name}, client.OfKind(first.GroupVersionKind())))(t)
			if took, err := client.TakeOver(t.Context(), w.c, live, managers); err != nil || !took {
				t.Fatalf("%s: taken over: %t, %v", name, took, err)
			}
			applied := must(client.Apply(t.Context(), w.c, relic(present, name, map[string]any{"kept": 1}), client.Force()))(t)
			spec, _, _ := unstructured.NestedMap(applied.Object.Object, "spec")
			if spec["a"] != nil || spec["d"] != nil || spec["kept"] == nil {
				t.Errorf("%s: after the apply the spec is %v", name, spec)
			}
			if took, err := client.TakeOver(t.Context(), w.c, applied.Object, managers); err != nil || took {
				t.Errorf("%s: taken over again: %t, %v", name, took, err)
			}
		}
	}
}

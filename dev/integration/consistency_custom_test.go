package integration

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// gadgetGroup is the group of TestContract13's Gadgets.
const gadgetGroup = "gadgets.evenkeel.dev"

var gadgets = schema.GroupVersionResource{Group: gadgetGroup, Version: "v1", Resource: "gadgets"}

// createGadgets installs the custom kind Gadget of a group, with the features of built-in kinds: defaults, a status, a
// scale. It removes the kind at the end of the test.
func (e env) createGadgets(group string) schema.GroupVersionResource {
	e.Helper()
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
	crd := fixture.Kind{
		GroupVersionKind: resource.GroupVersion().WithKind("Gadget"),
		Subresources:     "{status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}",
		Schema: `
type: object
properties:
  spec: {type: object, properties: {value: {type: string}, mode: {type: string, default: plain}, replicas: {type: integer}}}
  status: {type: object, properties: {seen: {type: string}, replicas: {type: integer}}}
`,
	}.Definition()
	eventually(e.T, func() string {
		if _, err := e.dynamic.Resource(crds).Create(e.Context(), crd, metav1.CreateOptions{}); err != nil {
			return err.Error() // that of an earlier run is still being deleted
		}
		return ""
	})
	e.Cleanup(func() {
		if err := e.dynamic.Resource(crds).Delete(context.WithoutCancel(e.Context()), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			e.Error(err)
		}
	})
	eventually(e.T, func() string {
		// Discovery lists the kind some seconds before objects of it can be created.
		probe := (&writing{name: "probe"}).gadget("0")
		probe.SetGroupVersionKind(resource.GroupVersion().WithKind("Gadget"))
		if _, err := e.dynamic.Resource(resource).Namespace(e.namespace).Create(e.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err.Error()
		}
		return ""
	})
	return resource
}

func (w *writing) gadget(value string) *unstructured.Unstructured {
	g := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
	g.SetGroupVersionKind(gadgets.GroupVersion().WithKind("Gadget"))
	g.SetName(w.name)
	g.SetOwnerReferences(w.meta.OwnerReferences)
	return g
}

// Like TestContract13_OwnWritesOfRealClients, with the dynamic client and a custom kind, whose objects are JSON.
func TestContract13_OwnWritesOfCustomObjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createGadgets(gadgetGroup)
	cluster := connect(t, local.RESTConfig())
	all := must(informer.New(informer.Config[*unstructured.Unstructured]{
		Name: "gadgets", Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{
			Kind: gadgets.GroupVersion().WithKind("Gadget"), Namespaces: []string{e.namespace},
		}),
	}))(t)
	checkOwnWrites(e, cluster, must(kubernetes.NewForConfig(cluster.RESTConfig()))(t), gadgetWrites(),
		source.OwnedIn(all, source.Owner{Kind: schema.GroupKind{Kind: "ConfigMap"}}))
}

func gadgetWrites() map[string]ownWrite {
	cases := map[string]ownWrite{}
	type client = dynamic.ResourceInterface
	type writeGadget = func(ctx context.Context, w *writing, g *unstructured.Unstructured, c client) (metav1.Object, error)
	with := func(name string, again again, want []string, write writeGadget) {
		var g *unstructured.Unstructured
		cases[name] = ownWrite{
			resource: gadgets, want: want, again: again,
			prepare: func(w *writing) {
				g = must(w.dynamic.Resource(gadgets).Namespace(w.namespace).Create(w.Context(), w.gadget("1"), metav1.CreateOptions{}))(w.T)
			},
			write: func(ctx context.Context, w *writing) (metav1.Object, error) {
				return write(ctx, w, g.DeepCopy(), w.ownDynamic.Resource(gadgets).Namespace(w.namespace))
			},
		}
	}
	cases["gadget-create"] = ownWrite{
		resource: gadgets, want: []string{"create Gadget: done", "patch Gadget/status: done"},
		write: func(ctx context.Context, w *writing) (metav1.Object, error) {
			c := w.ownDynamic.Resource(gadgets).Namespace(w.namespace)
			if _, err := c.Create(ctx, w.gadget("1"), metav1.CreateOptions{}); err != nil {
				return nil, err
			}
			return object(c.Patch(ctx, w.name, types.MergePatchType, []byte(`{"status":{"seen":"1"}}`), metav1.PatchOptions{}, "status"))
		},
	}
	with("gadget-update", never, []string{"update Gadget: done"}, func(ctx context.Context, _ *writing, g *unstructured.Unstructured, c client) (metav1.Object, error) {
		g.Object["spec"] = map[string]any{"value": "2"} // the server puts the default back
		return object(c.Update(ctx, g, metav1.UpdateOptions{}))
	})
	with("gadget-update-status", never, []string{"update Gadget/status: done"}, func(ctx context.Context, _ *writing, g *unstructured.Unstructured, c client) (metav1.Object, error) {
		g.Object["status"] = map[string]any{"seen": "1"}
		return object(c.UpdateStatus(ctx, g, metav1.UpdateOptions{}))
	})
	patch := func(name string, again again, kind types.PatchType, patch, subresource string) {
		want := "patch Gadget: done"
		var subresources []string
		if subresource != "" {
			want, subresources = "patch Gadget/"+subresource+": done", []string{subresource}
		}
		with(name, again, []string{want}, func(ctx context.Context, _ *writing, g *unstructured.Unstructured, c client) (metav1.Object, error) {
			return object(c.Patch(ctx, g.GetName(), kind, []byte(patch), metav1.PatchOptions{}, subresources...))
		})
	}
	patch("gadget-merge", never, types.MergePatchType, `{"spec":{"value":"2","mode":"bold"}}`, "")
	patch("gadget-merge-status", never, types.MergePatchType, `{"status":{"seen":"2"}}`, "status")
	patch("gadget-merge-removes", perhaps, types.MergePatchType, `{"spec":{"value":null}}`, "")
	patch("gadget-json", perhaps, types.JSONPatchType, `[{"op":"replace","path":"/spec/value","value":"2"}]`, "")
	patch("gadget-scale", perhaps, types.MergePatchType, `{"spec":{"replicas":2}}`, "scale")
	apply := func(name string, want []string, subresources ...string) {
		with(name, never, want, func(ctx context.Context, w *writing, _ *unstructured.Unstructured, c client) (metav1.Object, error) {
			wanted := w.gadget("2")
			if len(subresources) > 0 {
				wanted.Object = map[string]any{
					"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget",
					"metadata": map[string]any{"name": w.name}, "status": map[string]any{"seen": "2"},
				}
			}
			options := metav1.ApplyOptions{FieldManager: "operator", Force: true}
			if _, err := c.Apply(ctx, w.name, wanted, options, subresources...); err != nil {
				return nil, err
			}
			return object(c.Apply(ctx, w.name, wanted, options, subresources...))
		})
	}
	apply("gadget-apply", []string{"patch Gadget: done", "patch Gadget: no change"})
	apply("gadget-apply-status", []string{"patch Gadget/status: done", "patch Gadget/status: no change"}, "status")
	with("gadget-delete", always, []string{"delete Gadget: done"}, func(ctx context.Context, w *writing, _ *unstructured.Unstructured, c client) (metav1.Object, error) {
		return nil, c.Delete(ctx, w.name, metav1.DeleteOptions{})
	})
	with("gadget-finish", always, []string{"patch Gadget: done", "delete Gadget: done", "patch Gadget: done"}, func(ctx context.Context, w *writing, _ *unstructured.Unstructured, c client) (metav1.Object, error) {
		finalizers := func(list string) error {
			_, err := c.Patch(ctx, w.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
			return err
		}
		if err := finalizers(`["evenkeel.dev/test"]`); err != nil {
			return nil, err
		}
		if err := c.Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return nil, finalizers("null") // which ends it
	})
	return cases
}

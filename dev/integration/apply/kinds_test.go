package apply

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// installKind installs a custom kind, with a status subresource if status is true.
func installKind(t *testing.T, w world, name string, status bool) schema.GroupVersionKind {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "apply.evenkeel.dev", Version: "v1", Kind: name}
	kind := fixture.Kind{GroupVersionKind: gvk, Schema: `
type: object
properties:
  spec:
    type: object
    properties:
      size: {type: integer}
      color: {type: string, default: blue}
      parts:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items: {type: object, required: [name], properties: {name: {type: string}, weight: {type: integer}}}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`}
	if status {
		kind.Subresources = "{status: {}}"
	}
	applied(t.Context(), t, w.c, client.Created, kind.Definition())
	clustertest.Eventually(t, func() string {
		_, err := client.All[*unstructured.Unstructured](t.Context(), w.c, kube.Selection{Kind: gvk})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return gvk
}

func custom(w world, kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(w.namespace)
	u.SetName(name)
	return u
}

// Objects of a custom kind, with schema defaults, and with list elements that other clients have added.
func TestApplyCustomObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Widget", true)
	c, shows := withInformer[*unstructured.Unstructured](t, w, kind)
	ctx, requests := watched(t)
	configuration := func(weight int) *unstructured.Unstructured {
		return custom(w, kind, "w", map[string]any{"size": 3, "parts": []any{map[string]any{"name": "a", "weight": weight}}})
	}
	created := applied(ctx, t, c, client.Created, configuration(1)).Object
	requests.want(t, "patch")
	shows(created)
	applied(ctx, t, c, client.Unchanged, configuration(1))
	requests.want(t)

	more := must(client.Patch(t.Context(), w.as(t, "somebody"), created, client.JSONPatch(
		client.Operation{Op: "add", Path: "/spec/parts/-", Value: map[string]any{"name": "b", "weight": 7}})))(t)
	shows(more)
	changed := applied(ctx, t, c, client.Updated, configuration(2))
	if diff := cmp.Diff([]string{"spec.parts[a].weight: 1 -> 2"}, texts(changed.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	parts, _, _ := unstructured.NestedSlice(changed.Object.Object, "spec", "parts")
	if len(parts) != 2 {
		t.Errorf("parts %v, want those of others too", parts)
	}
}

// The status is applied separately, with a field owner of its own.
func TestApplyStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Gadget", true)
	c, shows := withInformer[*unstructured.Unstructured](t, w, kind)
	ctx, requests := watched(t)
	created := applied(ctx, t, c, client.Created, custom(w, kind, "g", map[string]any{"size": 3})).Object
	requests.want(t, "patch")
	shows(created)

	wanted := custom(w, kind, "g", map[string]any{"size": 99})
	wanted.Object["status"] = map[string]any{"phase": "Ready"}
	result := applied(ctx, t, c, client.Updated, wanted, client.Subresource("status"))
	requests.want(t, "patch/status")
	if diff := cmp.Diff([]string{`status.phase: none -> "Ready"`}, texts(result.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if size, _, _ := unstructured.NestedInt64(result.Object.Object, "spec", "size"); size != 3 {
		t.Errorf("the spec was changed: size %d", size)
	}
	shows(result.Object)
	applied(ctx, t, c, client.Unchanged, wanted, client.Subresource("status"))
	// Without the option, the status is not applied; the state of the spec is stored separately.
	wanted.Object["spec"] = map[string]any{"size": 3}
	applied(ctx, t, c, client.Unchanged, wanted)
	requests.want(t)
}

func TestApplyClusterScoped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	role := func(verbs ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}},
		}
	}
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), w.c, role()); err != nil {
			t.Error(err)
		}
	})
	applied(t.Context(), t, w.c, client.Created, role("get"))
	applied(t.Context(), t, w.c, client.Unchanged, role("get"))
	changed := applied(t.Context(), t, w.c, client.Updated, role("get", "list"))
	if diff := cmp.Diff([]string{`rules[0].verbs: ["get"] -> ["get","list"]`}, texts(changed.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	ctx, requests := watched(t)
	wrong := role("get")
	wrong.Namespace = w.namespace
	if _, err := client.Apply(ctx, w.c, wrong); err == nil {
		t.Error("applied to a namespace what lives in none")
	}
	requests.want(t)
}

// A Secret's stringData is applied as data, so its values are corrected, removed, and never shown.
func TestApplySecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := func(data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "login"}, StringData: data}
	}
	created := applied(t.Context(), t, w.c, client.Created, secret(map[string]string{"password": "hush", "user": "me"})).Object
	applied(t.Context(), t, w.c, client.Unchanged, secret(map[string]string{"password": "hush", "user": "me"}))
	must(client.Patch(t.Context(), w.as(t, "somebody"), created, client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"password":"other"}}`))))(t)
	mended := applied(t.Context(), t, w.c, client.Updated, secret(map[string]string{"password": "hush"}), client.Force())
	want := []string{"data.password: (hidden) -> another value (hidden)", "data.user: (hidden) -> none"}
	if diff := cmp.Diff(want, texts(mended.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if string(mended.Object.Data["password"]) != "hush" || len(mended.Object.Data) != 1 {
		t.Errorf("the Secret has %v", mended.Object.Data)
	}
}

// One slice with objects of several types.
func TestApplyObjectsOfAnyType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	ctx, requests := watched(t)
	asMap := custom(w, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "a", nil)
	asMap.Object["data"] = map[string]any{"mode": "fast"}
	delete(asMap.Object, "spec")
	children := []kube.Object{asMap, w.configMap("b", map[string]string{"mode": "fast"})}
	for _, child := range children {
		result := applied(ctx, t, c, client.Created, child)
		if reflect.TypeOf(result.Object) != reflect.TypeOf(child) {
			t.Errorf("a %T was applied, and a %T returned", child, result.Object)
		}
		shows(result.Object)
	}
	requests.want(t, "patch", "patch")
	for _, child := range children {
		applied(ctx, t, c, client.Unchanged, child)
	}
	requests.want(t)
}

// Invalid applies return an error without a request.
func TestApplyRefusedWithoutRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, requests := watched(t)
	other := w.as(t, "x")
	for name, test := range map[string]struct {
		obj     kube.Object
		options []client.WriteOption
		want    string
	}{
		"no kind":              {&unstructured.Unstructured{Object: map[string]any{}}, nil, "set its apiVersion and kind"},
		"no name":              {w.configMap("", nil), nil, "has no name"},
		"no version to insist": {w.configMap("settings", nil), []client.WriteOption{client.IfUnchanged()}, "has no resourceVersion"},
		"a scale":              {w.deployment("web", "x"), []client.WriteOption{client.Subresource("scale")}, "ScaleLive"},
	} {
		_, err := client.Apply(ctx, other, test.obj, test.options...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q in it", name, err, test.want)
		}
	}
	if _, err := client.ApplyConfiguration(ctx, other, nil); err == nil {
		t.Error("a nil configuration was applied")
	}
	requests.want(t)
}

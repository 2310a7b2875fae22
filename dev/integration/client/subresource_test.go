package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestStatusSubresourceIsWrittenSeparately(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Lamp", "lamps", true, "{status: {}}")
	lamp := must(client.Create(t.Context(), c, object(kind, namespace, "l", 1)))(t)
	ctx, calls := observe(t)
	phase := func(u *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return text
	}
	lit := lamp.DeepCopy()
	lit.Object["status"] = map[string]any{"phase": "Lit"}
	lit.Object["spec"].(map[string]any)["size"] = int64(2)
	updated := must(client.Update(ctx, c, lit, client.Subresource("status")))(t)
	if size, _, _ := unstructured.NestedInt64(updated.Object, "spec", "size"); phase(updated) != "Lit" || size != 1 || updated.GroupVersionKind() != kind {
		t.Errorf("the update of the status has made %v", updated)
	}
	dark := updated.DeepCopy()
	dark.Object["status"] = map[string]any{"phase": "Dark"}
	if patched := must(client.Patch(ctx, c, updated, client.MergeFrom(updated, dark), client.Subresource("status")))(t); phase(patched) != "Dark" {
		t.Errorf("the patch of the status has made %v", patched)
	}
	if patched := must(client.Patch(ctx, c, updated, client.MergeFrom(lamp, lit)))(t); phase(patched) != "Dark" {
		t.Errorf("a patch of the object has changed the status: %v", patched)
	}
	if err := first(client.Update(ctx, c, updated, client.Subresource("status"))); !errors.Is(err, client.ErrChanged) {
		t.Errorf("an old status: %v", err)
	}
	if read := must(client.Get[*unstructured.Unstructured](ctx, c, kube.KeyOf(lamp), client.OfKind(kind), client.Subresource("status")))(t); phase(read) != "Dark" {
		t.Errorf("the status that is read is %v", read)
	}
	at := "lamps " + namespace + "/l"
	want := []string{"update " + at + "/status", "patch " + at + "/status", "patch " + at, "update " + at + "/status", "get " + at + "/status"}
	if requests := calls.Take(); !slices.Equal(requests, want) {
		t.Errorf("the calls are %q, want %q", requests, want)
	}
	// A built-in kind that has only the subresource status.
	node := must(client.Create(t.Context(), c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))(t)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "host"}}
	node.TypeMeta = metav1.TypeMeta{}
	if node = must(client.Update(t.Context(), c, node, client.Subresource("status")))(t); len(node.Status.Addresses) != 1 || node.Kind != "Node" {
		t.Errorf("the node is %+v", node)
	}
}

// The API server responds as if the object did not exist.
func TestMissingSubresourceIsNamed(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Brick", "bricks", true, "")
	brick := must(client.Create(t.Context(), c, object(kind, namespace, "b", 1)))(t)
	cm := must(client.Create(t.Context(), c, configMap(namespace, "c", nil)))(t)
	for name, err := range map[string]error{
		"status of a custom kind":   first(client.Update(t.Context(), c, brick, client.Subresource("status"))),
		"scale of a custom kind":    client.ScaleLive(t.Context(), c, brick, 1, nil),
		"scale of a built-in kind":  first(client.Get[*autoscalingv1.Scale](t.Context(), c, kube.KeyOf(cm), client.SubresourceOf(cm, "scale"))),
		"status of a built-in kind": first(client.Update(t.Context(), c, cm, client.Subresource("status"))),
	} {
		if errors.Is(err, client.ErrGone) || !errors.Is(err, kube.ErrNotServed) || !strings.Contains(err.Error(), "its kind has no s") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	// For a kind with the subresource, a missing object is reported as missing.
	if err := client.Delete(t.Context(), c, brick); err != nil {
		t.Fatal(err)
	}
	lamp := define(t, c, "Torch", "torches", true, "{status: {}}")
	if err := first(client.Update(t.Context(), c, object(lamp, namespace, "none", 1), client.Subresource("status"))); !errors.Is(err, client.ErrGone) {
		t.Errorf("the status of what is gone: %v", err)
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Fleet", "fleets", true, "{scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}")
	for name, obj := range map[string]kube.Object{
		"typed":        must(client.Create(t.Context(), c, deployment(namespace, "web")))(t),
		"unstructured": must(client.Create(t.Context(), c, object(kind, namespace, "f", 1)))(t),
	} {
		scale := must(client.Get[*autoscalingv1.Scale](t.Context(), c, kube.KeyOf(obj), client.SubresourceOf(obj, "scale")))(t)
		if scale.Spec.Replicas != 1 || scale.Kind != "Scale" {
			t.Errorf("%s: the scale is %+v", name, scale)
		}
		old := scale.DeepCopy()
		scale.Spec.Replicas, scale.TypeMeta = 3, metav1.TypeMeta{}
		if scale = must(client.Update(t.Context(), c, scale, client.SubresourceOf(obj, "scale")))(t); scale.Spec.Replicas != 3 {
			t.Errorf("%s: the scale is %+v", name, scale)
		}
		if err := first(client.Update(t.Context(), c, old, client.SubresourceOf(obj, "scale"))); !errors.Is(err, client.ErrChanged) {
			t.Errorf("%s: of an old version: %v", name, err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
		if scale = must(client.Patch[*autoscalingv1.Scale](t.Context(), c, nil, patch, client.SubresourceOf(obj, "scale")))(t); scale.Spec.Replicas != 2 || scale.Name != obj.GetName() {
			t.Errorf("%s: the scale is %+v", name, scale)
		}
		created := must(client.Update(t.Context(), c, &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}, client.SubresourceOf(obj, "scale")))(t)
		if created.Spec.Replicas != 5 {
			t.Errorf("%s: the scale is %+v", name, created)
		}
		generic := must(client.Get[*unstructured.Unstructured](t.Context(), c, kube.KeyOf(obj), client.SubresourceOf(obj, "scale")))(t)
		if replicas, _, _ := unstructured.NestedInt64(generic.Object, "spec", "replicas"); replicas != 5 || generic.GetKind() != "Scale" {
			t.Errorf("%s: the scale is %v", name, generic)
		}
		if err := first(client.Update(t.Context(), c, obj, client.Subresource("scale"))); err == nil || !strings.Contains(err.Error(), "has the kind Scale") {
			t.Errorf("%s: a scale as the object: %v", name, err)
		}
	}
	web := must(client.Get[*appsv1.Deployment](t.Context(), c, kube.Key{Namespace: namespace, Name: "web"}))(t)
	if *web.Spec.Replicas != 5 {
		t.Errorf("the deployment has %d replicas", *web.Spec.Replicas)
	}
}

func TestEviction(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	must(client.Create(t.Context(), c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}))(t)
	web := must(client.Create(t.Context(), c, pod(namespace, "web")))(t)
	answer, err := client.Create(t.Context(), c, &policyv1.Eviction{}, client.SubresourceOf(web, "eviction"), client.DryRun())
	if err != nil || answer.Kind != "" {
		t.Errorf("a dry run of an eviction: %+v, %v", answer, err)
	}
	if found := must(client.Exists[*corev1.Pod](t.Context(), c, kube.KeyOf(web)))(t); !found {
		t.Fatal("a dry run has evicted it")
	}
	ctx, calls := observe(t)
	must(client.Create(ctx, c, &policyv1.Eviction{}, client.SubresourceOf(web, "eviction")))(t)
	if err := first(client.Create(ctx, c, &policyv1.Eviction{}, client.SubresourceOf(web, "eviction"))); !errors.Is(err, client.ErrGone) {
		t.Errorf("it is evicted again: %v", err)
	}
	evict := "create pods " + namespace + "/web/eviction"
	if requests := calls.Take(); !slices.Equal(requests, []string{evict, evict}) {
		t.Errorf("the calls are %q", requests)
	}
}

// The API server rejects an eviction for now with 429.
func TestEvictionRejectedForNow(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	must(client.Create(t.Context(), c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}))(t)
	web := must(client.Create(t.Context(), c, pod(namespace, "web")))(t)
	must(client.Create(t.Context(), c, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, client.SubresourceOf(web, "binding")))(t)
	running := must(client.GetLive(t.Context(), c, web))(t)
	running.Status.Phase = corev1.PodRunning
	running.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	running = must(client.Update(t.Context(), c, running, client.Subresource("status")))(t)
	if running.Spec.NodeName != "n1" {
		t.Errorf("the pod is bound to %q", running.Spec.NodeName)
	}
	if err := first(client.Create(t.Context(), c, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n2"}}, client.SubresourceOf(web, "binding"))); !apierrors.IsConflict(err) {
		t.Errorf("it is bound again: %v", err)
	}
	must(client.Create(t.Context(), c, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: web.Labels},
		},
	}))(t)
	err := first(client.Create(t.Context(), c, &policyv1.Eviction{}, client.SubresourceOf(web, "eviction")))
	if after, ok := usercode.RetryAfter(err); retry.Classify(err) != retry.Throttled || !ok {
		t.Errorf("the error is %v, and asks for %s", err, after)
	}
}

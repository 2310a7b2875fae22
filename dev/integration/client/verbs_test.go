package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/client/strategic"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

func first(_ any, err error) error { return err }

func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

// TestVerbs uses all verbs with a built-in kind as a Go type and with unstructured custom kinds, namespaced and
// cluster-scoped, and reads each as metadata.
func TestVerbs(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	lives := define(t, c, "House", "houses", true, "")
	floats := define(t, c, "Cloud", "clouds", false, "")
	t.Run("typed", func(t *testing.T) {
		t.Parallel()
		life(t, c, configMap(namespace, "typed", map[string]string{"a": "b"}), func(obj *corev1.ConfigMap) { obj.Data["a"] = "c" })
	})
	t.Run("typed, without a namespace", func(t *testing.T) {
		t.Parallel()
		life(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(obj *rbacv1.ClusterRole) {
			obj.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
		})
	})
	grow := func(obj *unstructured.Unstructured) {
		obj.Object["spec"].(map[string]any)["size"] = int64(9007199254740993)
	}
	t.Run("unstructured", func(t *testing.T) {
		t.Parallel()
		life(t, c, object(lives, namespace, "h", 9007199254740992), grow)
	})
	t.Run("unstructured, without a namespace", func(t *testing.T) {
		t.Parallel()
		life(t, c, object(floats, "", "c", 1), grow)
	})
}

func life[T kube.Object](t *testing.T, c *client.Client, obj T, change func(T)) {
	t.Helper()
	ctx, calls := observe(t)
	kind := must(c.Cluster().KindOf(obj))(t)
	key := kube.KeyOf(obj)
	if found := must(client.Exists[T](ctx, c, key, client.OfKind(kind)))(t); found {
		t.Fatal("it exists before it is created")
	}
	created := must(client.Create(ctx, c, obj))(t)
	if err := first(client.Create(ctx, c, obj)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("it is created again: %v", err)
	}
	read := must(client.Get[T](ctx, c, key, client.OfKind(kind)))(t)
	for name, obj := range map[string]kube.Object{"created": created, "read": read} {
		if obj.GetUID() == "" || obj.GetObjectKind().GroupVersionKind() != kind {
			t.Errorf("%s: the object is %+v", name, obj)
		}
	}
	if kube.KeyOf(obj) != key || obj.GetUID() != "" {
		t.Error("an argument was changed")
	}
	// One writer changes the object, while another one has read the state before.
	changed := read.DeepCopyObject().(T)
	change(changed)
	patched := must(client.Patch(ctx, c, read, client.MergeFrom(read, changed).Locked(read)))(t)
	if patched.GetResourceVersion() == read.GetResourceVersion() || !client.MergeFrom(changed, withVersionOf(patched, changed)).Empty() {
		t.Errorf("the patch has made %+v", patched)
	}
	delayed := read.DeepCopyObject().(T)
	delayed.SetLabels(map[string]string{"late": "yes"})
	for name, err := range map[string]error{
		"update":       first(client.Update(ctx, c, delayed)),
		"merge patch":  first(client.Patch(ctx, c, delayed, client.MergeFrom(read, delayed).Locked(read))),
		"JSON patch":   first(client.Patch(ctx, c, delayed, client.JSONPatch(client.Operation{Op: "add", Path: "/metadata/labels", Value: delayed.GetLabels()}).Locked(read))),
		"precondition": client.Delete(ctx, c, delayed, client.IfUnchanged()),
	} {
		if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || !apierrors.IsConflict(err) {
			t.Errorf("%s of an old version: %v, want %v", name, err, client.ErrChanged)
		}
	}
	// A metadata-only object can be patched and deleted like a complete one.
	metadata := must(client.Get[*metav1.PartialObjectMetadata](ctx, c, key, client.OfKind(kind)))(t)
	labelled := metadata.DeepCopy()
	labelled.Labels = map[string]string{"app": "life"}
	labelled = must(client.Patch(ctx, c, metadata, client.MergeFrom(metadata, labelled).Locked(metadata)))(t)
	if labelled.GroupVersionKind() != kind || labelled.Labels["app"] != "life" {
		t.Errorf("the metadata is %+v", labelled)
	}
	if keys := must(client.Keys[T](ctx, c, kube.Selection{Kind: kind, Namespaces: []string{key.Namespace}, LabelSelector: "app=life"}))(t); len(keys) != 1 || !keys.Has(key) {
		t.Errorf("the names are %v", keys)
	}
	replaced := delayed.DeepCopyObject().(T)
	replaced.SetUID("another-uid")
	if err := client.Delete(ctx, c, replaced); !apierrors.IsConflict(err) {
		t.Errorf("another one of its name is deleted: %v", err)
	}
	if err := client.Delete(ctx, c, labelled); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"get":    first(client.Get[T](ctx, c, key, client.OfKind(kind))),
		"patch":  first(client.Patch(ctx, c, delayed, client.MergeFrom(read, delayed))),
		"delete": client.Delete(ctx, c, labelled),
	} {
		if !errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) != nil {
			t.Errorf("%s of what is gone: %v", name, err)
		}
	}
	resource := must(c.Cluster().Resource(ctx, kind))(t).Resource
	collection := strings.TrimSuffix(kube.Key{Namespace: key.Namespace, Name: "x"}.String(), "x")
	if resource == "" {
		t.Fatal("no resource")
	}
	var verbs []string
	for _, call := range calls.Take() {
		verb, rest, _ := strings.Cut(call, " ")
		verbs = append(verbs, verb)
		if rest != resource+" "+key.String() && rest != resource+" "+collection {
			t.Errorf("the run's record says %q, which is not about %s %s", call, resource, key)
		}
	}
	slices.Sort(verbs)
	if got, want := strings.Join(slices.Compact(verbs), " "), "create delete get list patch update"; got != want {
		t.Errorf("the run's record has %s, want %s", got, want)
	}
}

// withVersionOf returns obj with the resource version of changed.
func withVersionOf[T kube.Object](obj, changed T) T {
	same := obj.DeepCopyObject().(T)
	same.SetResourceVersion(changed.GetResourceVersion())
	same.SetManagedFields(changed.GetManagedFields())
	same.SetGeneration(changed.GetGeneration())
	return same
}

// Each create with generateName creates another object.
func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "run-"}}
	one, other := must(client.Create(t.Context(), c, obj))(t), must(client.Create(t.Context(), c, obj))(t)
	if one.Name == other.Name || !strings.HasPrefix(one.Name, "run-") || obj.Name != "" {
		t.Errorf("the names are %q and %q", one.Name, other.Name)
	}
}

func TestDeleteAllOf(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	for name, app := range map[string]string{"a": "web", "b": "web", "c": "db"} {
		obj := configMap(namespace, name, nil)
		obj.Labels = map[string]string{"app": app}
		must(client.Create(t.Context(), c, obj))(t)
	}
	ctx, calls := observe(t)
	web := kube.Selection{Namespaces: []string{namespace}, LabelSelector: "app=web"}
	left := func() string {
		names := must(client.Keys[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{namespace}}))(t)
		return fmt.Sprint(len(names), " ", names.Has(kube.Key{Namespace: namespace, Name: "c"}))
	}
	if err := client.DeleteAllOf[*corev1.ConfigMap](ctx, c, web, client.DryRun()); err != nil || left() != "3 true" {
		t.Errorf("after a dry run there are %s; %v", left(), err)
	}
	if err := client.DeleteAllOf[*corev1.ConfigMap](ctx, c, web); err != nil || left() != "1 true" {
		t.Errorf("there are %s; %v", left(), err)
	}
	all := kube.Selection{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaces: []string{namespace}, FieldSelector: "metadata.name!="}
	if err := client.DeleteAllOf[*metav1.PartialObjectMetadata](ctx, c, all); err != nil || left() != "0 false" {
		t.Errorf("there are %s; %v", left(), err)
	}
	collection := "deletecollection configmaps " + namespace + "/"
	if requests := calls.Take(); !slices.Equal(requests, []string{collection + " (dry run)", collection, collection}) {
		t.Errorf("the calls are %q", requests)
	}
}

// A client with DryRun persists nothing, and the API server validates its requests.
func TestDryRunPersistsNothing(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	dry := with(t, c, func(config *client.Config) { config.DryRun = true })
	created := must(client.Create(t.Context(), dry, configMap(namespace, "a", nil)))(t)
	if found := must(client.Exists[*corev1.ConfigMap](t.Context(), c, kube.KeyOf(created)))(t); found || created.UID == "" {
		t.Errorf("a dry run has made %+v", created)
	}
	before := must(client.Create(t.Context(), c, deployment(namespace, "web")))(t)
	after := before.DeepCopy()
	after.Spec.Replicas = new(int32(7))
	results := []*appsv1.Deployment{
		must(client.Update(t.Context(), dry, after))(t), must(client.Patch(t.Context(), dry, before, client.MergeFrom(before, after)))(t),
		must(client.Patch(t.Context(), dry, before, strategic.From(before, after)))(t),
	}
	for i, result := range results {
		if *result.Spec.Replicas != 7 {
			t.Errorf("result %d has %d replicas", i, *result.Spec.Replicas)
		}
	}
	for _, err := range []error{
		client.Delete(t.Context(), dry, before), client.DeleteAllOf[*appsv1.Deployment](t.Context(), dry, kube.Selection{Namespaces: []string{namespace}, FieldSelector: "metadata.name!="}),
		client.DeleteLive(t.Context(), dry, before, nil), client.ScaleLive(t.Context(), dry, before, 0, nil),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	now := must(client.GetLive(t.Context(), c, before))(t)
	if now.ResourceVersion != before.ResourceVersion {
		t.Errorf("a dry run has changed it: %+v", now)
	}
	after.Spec.Replicas = new(int32(-1))
	err := first(client.Update(t.Context(), dry, after))
	causes := retryrules.Fields(err)
	if retry.Classify(err) != retry.Invalid || len(causes) != 1 || causes[0] != "spec.replicas" {
		t.Errorf("what cannot be is %v, with the causes %v", err, causes)
	}
}

// A strategic merge patch changes one element of a list. A merge patch replaces the list.
func TestStrategicPatchKeepsOtherListElements(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	before := must(client.Create(t.Context(), c, deployment(namespace, "web")))(t)
	after := before.DeepCopy()
	after.Spec.Template.Spec.Containers[0].Image = "web:2"
	// Another client adds a container.
	injected := before.DeepCopy()
	injected.Spec.Template.Spec.Containers = append(injected.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy"})
	must(client.Update(t.Context(), c, injected))(t)
	images := func(d *appsv1.Deployment) (images []string) {
		for _, container := range d.Spec.Template.Spec.Containers {
			images = append(images, container.Image)
		}
		return images
	}
	if err := first(client.Patch(t.Context(), c, before, strategic.From(before, after).Locked(before))); !errors.Is(err, client.ErrChanged) {
		t.Errorf("with a lock: %v", err)
	}
	if got := images(must(client.Patch(t.Context(), c, before, strategic.From(before, after)))(t)); !slices.Equal(got, []string{"web:2", "proxy"}) {
		t.Errorf("after a strategic patch the images are %q", got)
	}
	if got := images(must(client.Patch(t.Context(), c, before, client.MergeFrom(before, after)))(t)); !slices.Equal(got, []string{"web:2"}) {
		t.Errorf("after a merge patch the images are %q", got)
	}
	test := client.JSONPatch(client.Operation{Op: "test", Path: "/spec/replicas", Value: 5}, client.Operation{Op: "remove", Path: "/spec/paused"})
	if err := first(client.Patch(t.Context(), c, before, test)); retry.Classify(err) != retry.Invalid {
		t.Errorf("a test that fails: %v", err)
	}
}

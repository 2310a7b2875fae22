package integration

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// database creates a StatefulSet of three replicas. No controller changes it.
func (e env) database(name string) *appsv1.StatefulSet {
	e.Helper()
	labels := map[string]string{"app": name}
	return must(e.clients.AppsV1().StatefulSets(e.namespace).Create(e.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "db"}}},
			},
		},
	}, metav1.CreateOptions{}))(e.T)
}

// annotate changes a database as another client.
func (e env) annotate(name, value string) {
	e.Helper()
	sets := e.clients.AppsV1().StatefulSets(e.namespace)
	set := must(sets.Get(e.Context(), name, metav1.GetOptions{}))(e.T)
	set.Annotations = map[string]string{"note": value}
	must(sets.Update(e.Context(), set, metav1.UpdateOptions{}))(e.T)
}

func (e env) replicas(name string) int32 {
	e.Helper()
	return *must(e.clients.AppsV1().StatefulSets(e.namespace).Get(e.Context(), name, metav1.GetOptions{}))(e.T).Spec.Replicas
}

func TestLiveScale(t *testing.T) {
	e := newEnv(t)
	c := newClient(t)
	stale := e.database("db")
	e.annotate("db", "later than what is cached")

	err := client.ScaleLive(t.Context(), c, stale, 0, nil, client.IfUnchanged())
	if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || e.replicas("db") != 3 {
		t.Errorf("unchanged was demanded: the error is %v, and it has %d replicas", err, e.replicas("db"))
	}
	err = client.ScaleLive(t.Context(), c, stale, 0, func(*appsv1.StatefulSet) error {
		e.annotate("db", "between the read and the write")
		return nil
	})
	if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || e.replicas("db") != 3 {
		t.Errorf("changed in between: the error is %v, and it has %d replicas", err, e.replicas("db"))
	}
	if err := client.ScaleLive(t.Context(), c, stale, 0, nil, client.DryRun()); err != nil || e.replicas("db") != 3 {
		t.Errorf("dry run: the error is %v, and it has %d replicas", err, e.replicas("db"))
	}
	for _, replicas := range []int32{1, 0} {
		if err := client.ScaleLive(t.Context(), c, stale, replicas, nil); err != nil || e.replicas("db") != replicas {
			t.Errorf("to %d: the error is %v, and it has %d replicas", replicas, err, e.replicas("db"))
		}
		now := must(e.clients.AppsV1().StatefulSets(e.namespace).Get(t.Context(), "db", metav1.GetOptions{}))(t)
		managed := map[string]bool{} // by subresource
		for _, entry := range now.ManagedFields {
			managed[entry.Subresource] = true
		}
		// The API server removes the manager of replicas from managedFields when the number is 0.
		if !managed[""] || managed["scale"] != (replicas > 0) {
			t.Errorf("to %d: the managed fields are %v", replicas, now.ManagedFields)
		}
	}
}

func TestLiveDelete(t *testing.T) {
	e := newEnv(t)
	c := newClient(t)
	sets := e.clients.AppsV1().StatefulSets(e.namespace)
	first := e.database("db")

	err := client.DeleteLive(t.Context(), c, first, func(*appsv1.StatefulSet) error {
		e.annotate("db", "between the read and the write")
		return nil
	})
	if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) {
		t.Errorf("changed in between: the error is %v", err)
	}
	if err := client.DeleteLive(t.Context(), c, first, nil, client.DryRun()); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if err := client.DeleteLive(t.Context(), c, first, nil); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := client.DeleteLive(t.Context(), c, first, nil); !errors.Is(err, client.ErrGone) {
		t.Errorf("delete what is gone: the error is %v", err)
	}
	second := e.database("db")
	if err := client.DeleteLive(t.Context(), c, first, nil); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("delete what was replaced: the error is %v", err)
	}
	err = client.DeleteLive(t.Context(), c, second, func(*appsv1.StatefulSet) error {
		if err := sets.Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		e.database("db")
		return nil
	})
	if !errors.Is(err, client.ErrChanged) {
		t.Errorf("replaced in between: the error is %v", err)
	}
	if _, err := sets.Get(t.Context(), "db", metav1.GetOptions{}); err != nil {
		t.Errorf("the third one has been deleted: %v", err)
	}
}

func TestLiveWithMetadataAndTypes(t *testing.T) {
	e := newEnv(t)
	c := newClient(t)
	set := e.database("db")
	e.annotate("db", "later")

	meta := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: set.ObjectMeta,
	}
	live := must(client.GetLive(t.Context(), c, meta))(t)
	if live.Annotations["note"] != "later" || live.Kind != "StatefulSet" {
		t.Errorf("metadata only: got %v", live)
	}
	if typed := must(client.GetLive(t.Context(), c, set))(t); typed.Annotations["note"] != "later" || *typed.Spec.Replicas != 3 {
		t.Errorf("typed: got %v", typed)
	}
	node := must(e.clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "live-"},
	}, metav1.CreateOptions{}))(t)
	if err := client.DeleteLive[kube.Object](t.Context(), c, node, nil); err != nil {
		t.Errorf("delete a Node: %v", err)
	}

	remove := e.createCRD("Livewidget")
	resource := widgets
	resource.Resource = "livewidgets"
	widget := must(e.dynamic.Resource(resource).Namespace(e.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.Group + "/v1", "kind": "Livewidget", "metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"value": "1"},
	}}, metav1.CreateOptions{}))(t)
	got := must(client.GetLive(t.Context(), c, widget))(t)
	if value, _, _ := unstructured.NestedString(got.Object, "spec", "value"); value != "1" {
		t.Errorf("unstructured: got %v", got)
	}
	if err := client.ScaleLive(t.Context(), c, widget, 0, nil); err == nil || !strings.Contains(err.Error(), "no scale subresource") {
		t.Errorf("scale what cannot be scaled: the error is %v", err)
	}
	if err := client.DeleteLive(t.Context(), c, widget, nil); err != nil {
		t.Errorf("delete a custom object: %v", err)
	}
	remove()
	eventually(t, func() string {
		_, err := client.GetLive(t.Context(), c, widget)
		if errors.Is(err, kube.ErrNotServed) && !errors.Is(err, client.ErrGone) {
			return ""
		}
		return "the kind has been removed, and the error is " + err.Error()
	})
}

package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestFailedObjectHasIdentityAndNoContent(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", Generation: 3, DeletionTimestamp: &now,
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"secret": "x"}, Finalizers: []string{"f"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "owner"}},
	}}
	whole, err := FromObject(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := NewFailed(whole, errors.New("broken"))
	read, err := Read(failed.Format, failed.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*failed, read); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	for name, pair := range map[string][2]any{
		"labels":     {whole.Labels(), failed.Labels()},
		"owners":     {whole.OwnerReferences(), failed.OwnerReferences()},
		"finalizers": {whole.Finalizers(), failed.Finalizers()},
		"deleting":   {true, failed.Deleting},
		"generation": {int64(3), failed.Generation},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	expectFailure[*corev1.Pod](t, failed)
	expectFailure[*unstructured.Unstructured](t, failed)
	expectFailure[*metav1.PartialObjectMetadata](t, failed)

	c := Comparer{}
	if changed := c.Compare(failed, NewFailed(whole, errors.New("broken")), kube.ChangedAnything); changed != 0 {
		t.Errorf("the same state differs in %v", changed)
	}
	next := *whole
	next.ResourceVersion = "8"
	const unknown = kube.ChangedSpec | kube.ChangedStatus | kube.ChangedAnnotations
	for name, after := range map[string]*Object{"failed": NewFailed(&next, errors.New("broken")), "whole": &next} {
		if changed := c.Compare(failed, after, kube.ChangedAnything); changed&unknown != unknown {
			t.Errorf("the next state, %s, differs only in %v", name, changed)
		}
	}
}

func expectFailure[T kube.Object](t *testing.T, o *Object) {
	t.Helper()
	decoder, err := NewDecoder[T](schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	if obj, err := decoder.Decode(o); err == nil || err.Error() != "decode ns/a from failed as "+typeName(obj)+": broken" {
		t.Errorf("Decode: %v", err)
	}
}

func typeName(obj any) string {
	switch obj.(type) {
	case *corev1.Pod:
		return "*v1.Pod"
	case *unstructured.Unstructured:
		return "*unstructured.Unstructured"
	default:
		return "*v1.PartialObjectMetadata"
	}
}

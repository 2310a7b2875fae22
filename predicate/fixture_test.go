package predicate_test

import (
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func podKind() (kind metav1.TypeMeta) { return metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} }

// newPod returns a Pod with a value in every field that predicates compare.
func newPod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: podKind(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "uid-1", ResourceVersion: "10", Generation: 1,
			Labels:          map[string]string{"app": "web", "tier": "front"},
			Annotations:     map[string]string{"note": "a", "other": "b"},
			Finalizers:      []string{"example.com/a"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Website", Name: "a", UID: "o-1", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// changedPod returns the Pod after the API server has stored the change that edit makes.
func changedPod(edit func(*corev1.Pod)) *corev1.Pod {
	pod := newPod()
	pod.ResourceVersion = "11"
	edit(pod)
	return pod
}

// encodings returns the formats in which an informer may store a Pod.
func encodings() map[string]func(testing.TB, *corev1.Pod) *wire.Object {
	return map[string]func(testing.TB, *corev1.Pod) *wire.Object{
		"protobuf": func(tb testing.TB, pod *corev1.Pod) *wire.Object {
			tb.Helper()
			return encode(tb, pod)
		},
		"JSON": func(tb testing.TB, pod *corev1.Pod) *wire.Object {
			tb.Helper()
			return encode(tb, toUnstructured(tb, pod))
		},
	}
}

func encode(tb testing.TB, obj kube.Object) *wire.Object {
	tb.Helper()
	o, err := wire.FromObject(obj, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func toUnstructured(tb testing.TB, obj kube.Object) *unstructured.Unstructured {
	tb.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		tb.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func change(t informer.ChangeType, before, after *wire.Object) informer.Change {
	encoded := func(o *wire.Object) kube.Object {
		if o == nil {
			return nil
		}
		return &wire.EncodedObject{Encoded: o}
	}
	c, err := informer.NewChange(t, corev1.SchemeGroupVersion.WithKind("Pod"), encoded(before), encoded(after))
	if err != nil {
		panic(err)
	}
	return c
}

// mustNotRead returns a predicate that fails the test if it is called.
func mustNotRead(t *testing.T) informer.Predicate {
	t.Helper()
	return func(informer.Change) bool {
		t.Error("the predicate was called after the result was known")
		return false
	}
}

package apiobject_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestNewReturnsDistinctEmptyObjects(t *testing.T) {
	t.Parallel()
	testNew(t, &corev1.Pod{})
	testNew(t, &unstructured.Unstructured{})
	testNew(t, &metav1.PartialObjectMetadata{})
}

func testNew[T kube.Object](t *testing.T, want T) {
	t.Helper()
	one, another := apiobject.New[T](), apiobject.New[T]()
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("New (-want +got):\n%s", diff)
	}
	if any(one) == any(another) {
		t.Errorf("New[%T] returned the same object twice", want)
	}
}

func TestNewPanicsForInterfaces(t *testing.T) {
	t.Parallel()
	defer func() {
		const want = "create an object: kube.Object is not a pointer to a struct"
		if got := recover(); got != want {
			t.Errorf("it panicked with %v, want %q", got, want)
		}
	}()
	apiobject.New[kube.Object]()
}

package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestBuiltinKind(t *testing.T) {
	t.Parallel()
	for want, obj := range map[schema.GroupVersionKind]runtime.Object{
		{Version: "v1", Kind: "Pod"}:                                 &corev1.Pod{},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}: (*networkingv1.Ingress)(nil),
	} {
		if got, ok := kube.BuiltinKind(obj); !ok || got != want {
			t.Errorf("the kind of a %T is %s, %v", obj, got, ok)
		}
	}
	for _, obj := range []runtime.Object{nil, &unstructured.Unstructured{}} {
		if got, ok := kube.BuiltinKind(obj); ok {
			t.Errorf("the kind of a %T is %s", obj, got)
		}
	}
}

package apiobject_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

// client-go's scheme is the reference for the types of k8s.io/api.
func TestBuiltinKindsEqualClientGo(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for kind, goType := range clientscheme.Scheme.AllKnownTypes() {
		if !strings.HasPrefix(goType.PkgPath(), "k8s.io/api/") {
			continue
		}
		got, err := cluster.KindOf(reflect.New(goType).Interface().(runtime.Object))
		if err != nil || got != kind {
			t.Errorf("%s is %s (%v), want %s", goType, got, err, kind)
		}
		checked++
	}
	if checked < 300 {
		t.Errorf("only %d types were checked", checked)
	}
}

func TestKindOfDefinitions(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	want := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	if got, err := cluster.KindOf(&apiextensionsv1.CustomResourceDefinition{}); err != nil || got != want {
		t.Errorf("the kind is %s (%v), want %s", got, err, want)
	}
}

// A registered type takes precedence over the kind from its package path.
func TestRegisteredKindWins(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}, func(s *runtime.Scheme) error {
		s.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("Capsule"), &corev1.Pod{})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cluster.KindOf(&corev1.Pod{}); err != nil || got.Kind != "Capsule" {
		t.Errorf("kind %s, %v", got, err)
	}
}

func TestBuiltinKind(t *testing.T) {
	t.Parallel()
	for want, obj := range map[schema.GroupVersionKind]runtime.Object{
		{Version: "v1", Kind: "Pod"}:                                 &corev1.Pod{},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}: (*networkingv1.Ingress)(nil),
	} {
		if got, ok := apiobject.BuiltinKind(obj); !ok || got != want {
			t.Errorf("the kind of a %T is %s, %v", obj, got, ok)
		}
	}
	for _, obj := range []runtime.Object{nil, &unstructured.Unstructured{}} {
		if got, ok := apiobject.BuiltinKind(obj); ok {
			t.Errorf("the kind of a %T is %s", obj, got)
		}
	}
}

package apiobject

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DeclaredScope returns the scope that the Go type of obj declares by the method NamespaceScoped. obj may be a nil
// pointer.
func DeclaredScope(obj any) (namespaced, declared bool) {
	scoped, ok := obj.(interface{ NamespaceScoped() bool })
	if !ok {
		return false, false
	}
	if value := reflect.ValueOf(obj); value.Kind() == reflect.Pointer && value.IsNil() {
		scoped = reflect.New(value.Type().Elem()).Interface().(interface{ NamespaceScoped() bool })
	}
	return scoped.NamespaceScoped(), true
}

// DeclaredScopeOf returns the scope that the Go type of obj declares. If obj is unstructured, or metadata only, it is
// that of the type that is registered for kind in scheme, which may be nil.
func DeclaredScopeOf(obj any, kind schema.GroupVersionKind, scheme *runtime.Scheme) (namespaced, declared bool) {
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
	default:
		return DeclaredScope(obj)
	}
	if scheme == nil {
		return false, false
	}
	registered, err := scheme.New(kind)
	if err != nil {
		return false, false
	}
	return DeclaredScope(registered)
}

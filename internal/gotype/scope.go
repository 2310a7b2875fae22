package gotype

import "reflect"

// DeclaredScope returns the scope that the Go type of obj declares by the method NamespaceScoped. obj may be a nil pointer.
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

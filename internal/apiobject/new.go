// Package apiobject has what the library's packages must know of Kubernetes objects without a request: the kind and the
// scope of a Go type, paths of fields, the fields whose values are not shown, and the order of resource versions.
package apiobject

import (
	"fmt"
	"reflect"
)

// New returns a new, empty object of type T, which must be a pointer to a struct, as every kube.Object is. It panics if
// T is an interface.
func New[T any]() T {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("create an object: %s is not a pointer to a struct", t))
	}
	return reflect.New(t.Elem()).Interface().(T)
}

// Package gotype knows the Go types of Kubernetes objects: how to create one, and which kind it is of.
package gotype

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

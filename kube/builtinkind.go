package kube

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BuiltinKind returns the kind of an object whose Go type is one of k8s.io/api, whether the
// object carries it or not. It is false for all others. Cluster.KindOf knows those too that are
// registered with a Cluster.
func BuiltinKind(obj runtime.Object) (schema.GroupVersionKind, bool) {
	if obj == nil {
		return schema.GroupVersionKind{}, false
	}
	return builtinKind(reflect.TypeOf(obj))
}

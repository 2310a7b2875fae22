package kube

import (
	"reflect"
	"strings"

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

// builtinKind returns the kind of a type of k8s.io/api, which its package's path tells:
// k8s.io/api/<folder>/<version>, and a group that follows from the folder. It knows the types of
// CustomResourceDefinitions too, which have a module of their own.
//
// A scheme would know it too, but whoever imports client-go's links the types of all groups,
// some 10 MB, for the few that a controller handles.
func builtinKind(t reflect.Type) (schema.GroupVersionKind, bool) {
	if t.Kind() != reflect.Pointer {
		return schema.GroupVersionKind{}, false
	}
	t = t.Elem()
	if version, ok := strings.CutPrefix(t.PkgPath(), "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"); ok {
		return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: version, Kind: t.Name()}, true
	}
	path, ok := strings.CutPrefix(t.PkgPath(), "k8s.io/api/")
	folder, version, found := strings.Cut(path, "/")
	if !ok || !found || strings.Contains(version, "/") {
		return schema.GroupVersionKind{}, false
	}
	return schema.GroupVersionKind{Group: builtinGroup(folder), Version: version, Kind: t.Name()}, true
}

func builtinGroup(folder string) string {
	switch folder {
	case "core":
		return ""
	case "apps", "autoscaling", "batch", "extensions", "policy":
		return folder // from before groups had domains
	case "apiserverinternal":
		return "internal.apiserver.k8s.io"
	case "flowcontrol":
		return "flowcontrol.apiserver.k8s.io"
	case "rbac":
		return "rbac.authorization.k8s.io"
	}
	return folder + ".k8s.io"
}

package apiobject

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BuiltinKind returns the kind of an object with a Go type of k8s.io/api, even if its TypeMeta is empty. It returns
// false for other types. kube.Cluster.KindOf also supports types that are registered with a Cluster.
func BuiltinKind(obj runtime.Object) (schema.GroupVersionKind, bool) {
	if obj == nil {
		return schema.GroupVersionKind{}, false
	}
	return builtinKind(reflect.TypeOf(obj))
}

// builtinKind returns the kind of a type of k8s.io/api from the path of its package: k8s.io/api/<folder>/<version>. The
// folder determines the group. It also supports the types of CustomResourceDefinitions, which are in a module of their
// own.
//
// A scheme contains the kinds too. But importing client-go's scheme links the types of all groups, about 10 MB, and a
// controller needs few of them.
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
		return folder // groups from before groups had domains
	case "apiserverinternal":
		return "internal.apiserver.k8s.io"
	case "flowcontrol":
		return "flowcontrol.apiserver.k8s.io"
	case "rbac":
		return "rbac.authorization.k8s.io"
	}
	return folder + ".k8s.io"
}

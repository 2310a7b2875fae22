package kube

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is a Kubernetes object: a pointer to a typed object such as *corev1.Pod, *unstructured.Unstructured or
// *metav1.PartialObjectMetadata.
type Object interface {
	metav1.Object
	runtime.Object
}

// Key is the namespace and name of an object of a kind. The namespace is empty for cluster-scoped kinds. Keys are
// comparable and can be map keys.
type Key struct {
	Namespace string
	Name      string
}

// KeyOf returns the key of obj.
func KeyOf(obj metav1.Object) Key {
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// ParseKey parses the format of Key.String: "namespace/name", or "name" for a cluster-scoped object.
func ParseKey(s string) (Key, error) {
	namespace, name, namespaced := strings.Cut(s, "/")
	if !namespaced {
		namespace, name = "", s
	}
	if name == "" || strings.Contains(name, "/") || (namespaced && namespace == "") {
		return Key{}, fmt.Errorf("parse key %q: want \"namespace/name\" or \"name\"", s)
	}
	return Key{Namespace: namespace, Name: name}, nil
}

// String returns "namespace/name", or "name" for a cluster-scoped object.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

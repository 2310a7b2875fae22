package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// Scoped is an Object whose Go type declares whether objects of its kind have a namespace. Types of custom resources
// may implement it; no type needs to.
//
//	func (*Shop) NamespaceScoped() bool { return true }
//
// A missing or superfluous namespace is then an error before any request, even before discovery, also if the cluster
// does not serve the kind yet: of the functions of package client, of informers, and of ownerref.SetControllerInMemory.
// If the cluster serves the kind with the other scope, Cluster.Resource returns an error.
type Scoped interface {
	Object
	// NamespaceScoped must not depend on the object. It is called for an empty object.
	NamespaceScoped() bool
}

// declaredScopes returns the scopes that the types of the scheme declare; true: namespaced.
func declaredScopes(scheme *runtime.Scheme) map[schema.GroupVersionKind]bool {
	scopes := map[schema.GroupVersionKind]bool{}
	for kind := range scheme.AllKnownTypes() {
		obj, err := scheme.New(kind)
		if err != nil {
			continue // not possible for a known type
		}
		if namespaced, declared := apiobject.DeclaredScope(obj); declared {
			scopes[kind] = namespaced
		}
	}
	return scopes
}

// checkScope returns an error if the Go type of the kind declares another scope than the cluster has.
func (c *Cluster) checkScope(kind schema.GroupVersionKind, served Resource) (Resource, error) {
	namespaced, declared := c.scopes[kind]
	if !declared || namespaced == served.Namespaced {
		return served, nil
	}
	names := map[bool]string{true: "namespaced", false: "cluster-scoped"}
	return Resource{}, fmt.Errorf("kind %s in %s is %s in the cluster, and its Go type declares that it is %s "+
		"(NamespaceScoped)",
		kind.Kind, kind.GroupVersion(), names[served.Namespaced], names[namespaced])
}

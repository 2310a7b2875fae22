package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

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

// SetNamespaces limits everything that works with the Cluster to these namespaces, for a program that has a Role in
// each of them and no ClusterRole: they are the default of Selection.Namespaces (of informers, sources, children, and
// calls of package client that read) and of the namespaces in which webhooks are called. A Selection that names
// others, or AllNamespaces, is not limited, and neither are kinds that live in no namespace, which need a ClusterRole,
// nor the lease and the certificates of the program, which must not move when the namespaces change. Call it before the
// parts are created. manager.Options.Connect sets those of the flag --namespaces. Default, and after a call without
// names or with AllNamespaces: no limit.
//
// Errors: names that no namespace can have; AllNamespaces beside others; an informer, a controller, a Retriever or a
// webhook server was created before. They change nothing.
func (c *Cluster) SetNamespaces(names ...string) error {
	var unique []string
	var errs []error
	for _, name := range names {
		switch problems := validation.IsDNS1123Label(name); {
		case name == AllNamespaces && len(names) == 1:
		case name == AllNamespaces:
			errs = append(errs, fmt.Errorf("%q means all namespaces: it must be the only one", name))
		case len(problems) > 0:
			errs = append(errs, fmt.Errorf("%q: %s", name, strings.Join(problems, "; ")))
		case !slices.Contains(unique, name):
			unique = append(unique, name)
		}
	}
	if c.observers.HasParts() {
		errs = append(errs, errors.New("informers, controllers, Retrievers or webhook servers were created already: "+
			"set the namespaces before"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the namespaces of a cluster: %w", err)
	}
	c.namespaces.Store(&unique)
	return nil
}

// Namespaces returns a copy of the namespaces of SetNamespaces. Without a limit, and for a nil Cluster, it returns nil.
func (c *Cluster) Namespaces() []string {
	if c == nil {
		return nil
	}
	if names := c.namespaces.Load(); names != nil {
		return slices.Clone(*names)
	}
	return nil
}

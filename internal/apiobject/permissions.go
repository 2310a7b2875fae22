package apiobject

import (
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Permission is what a part of a program does with the objects of a kind. Program manifests contain it as RBAC.
type Permission struct {
	Kind        schema.GroupVersionKind
	Subresource string
	Verbs       []string
	// Names limits it to objects of these names. Default: all.
	Names []string
	// Namespaces are those of the objects; "*" means all. Default: the namespaces in which informers of the program
	// watch the kind Of, by default Kind, or without an informer those of the cluster's limit, or all.
	Namespaces []string
	Of         schema.GroupVersionKind

	owner reflect.Type // without a Kind: see RequireOf
}

// controlled is a kind that a controller handles as objects of a Go type.
type controlled struct {
	owner reflect.Type
	kind  schema.GroupVersionKind
}

// Controls records that a controller handles objects of a Go type and a kind, and writes Events about them.
func (o *Observers) Controls(owner reflect.Type, kind schema.GroupVersionKind) {
	if o == nil || kind.Empty() {
		return
	}
	events := schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
	o.Require(Permission{Kind: events, Verbs: []string{"create", "patch"}, Of: kind})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.records {
		o.controlled = append(o.controlled, controlled{owner, kind})
	}
}

// RecordPermissions makes Require record permissions. Without it, a program that creates parts for a long time would
// keep all of them.
func (o *Observers) RecordPermissions() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records = true
}

// Require records what a part will do, if RecordPermissions was called. Each part calls it when it is created. It does
// nothing for a nil o.
func (o *Observers) Require(permissions ...Permission) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.records {
		o.permissions = append(o.permissions, permissions...)
	}
}

// Permissions returns what Require has recorded.
func (o *Observers) Permissions() []Permission {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Permission
	for _, permission := range o.permissions {
		if permission.owner == nil {
			all = append(all, permission)
			continue
		}
		for _, by := range o.controlled {
			if by.owner == permission.owner {
				permission.Kind = by.kind
				all = append(all, permission)
			}
		}
	}
	return all
}

// RequireOf is Require for the kind of the Go type T. For a type without a kind, as unstructured objects, it is Require
// for the kinds of all controllers of this type.
func RequireOf[T runtime.Object, C interface {
	comparable
	HTTPClient() *http.Client
	KindOf(obj runtime.Object) (schema.GroupVersionKind, error)
}](cluster C, subresource string, verbs ...string) {
	observers := ObserversOf(cluster)
	if observers == nil {
		return
	}
	permission := Permission{Subresource: subresource, Verbs: verbs}
	var err error
	if permission.Kind, err = cluster.KindOf(New[T]()); err != nil || permission.Kind.Empty() {
		permission.owner = reflect.TypeFor[T]()
	}
	observers.Require(permission)
}

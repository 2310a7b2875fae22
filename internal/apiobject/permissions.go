package apiobject

import (
	"net/http"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Namespaces are those of the objects; "*" means all. Default: those of the cluster's limit, or all.
	Namespaces []string

	// OutsideNamespaces replaces Namespaces if Of lives in no namespace. Default: those of the cluster's limit, or all.
	OutsideNamespaces []string

	// Fence is whether the objects of a fence have the permission: leader.FenceManifest for the lease.
	Fence bool
	// Standby is whether replicas without the lease need it too.
	Standby bool

	// Part is a reflect.Type, or a part that Join gives to controllers: the permission is needed in the namespaces of
	// the objects of the controllers of that Go type, or with that part; Kind defaults to the kind of these objects. A
	// part without a controller may be used anywhere.
	Part any
	// Of is the kind of these objects, in the result of Permissions.
	Of schema.GroupVersionKind
}

// controlled are the objects that a controller handles.
type controlled struct {
	controller   string
	owner        reflect.Type
	kind         schema.GroupVersionKind
	namespaces   []string
	ownRetriever bool
}

// Controls records that a controller handles objects of a Go type and a kind, empty if it is not known, in namespaces,
// and writes Events about them. ownRetriever is whether the program lists and watches them by itself.
func (o *Observers) Controls(
	controller string, owner reflect.Type, kind schema.GroupVersionKind, namespaces []string, ownRetriever bool,
) {
	if o == nil {
		return
	}
	o.Require(Permission{
		Kind:  schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"},
		Verbs: []string{"create", "patch"}, Namespaces: namespaces, Of: kind,
		OutsideNamespaces: []string{metav1.NamespaceDefault},
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.records {
		o.controlled = append(o.controlled, controlled{controller, owner, kind, namespaces, ownRetriever})
	}
}

// Join records that a controller has a part.
func (o *Observers) Join(part any, controller string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.records {
		if o.joined == nil {
			o.joined = map[any][]string{}
		}
		o.joined[part] = append(o.joined[part], controller)
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

// Permissions returns what Require has recorded, with the namespaces of each Part.
func (o *Observers) Permissions() []Permission {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Permission
	for _, permission := range o.permissions {
		part, found := permission.Part, false
		permission.Part = nil
		for _, by := range o.controlled {
			if part != nil && (part == any(by.owner) || slices.Contains(o.joined[part], by.controller)) {
				one := permission
				if one.Kind.Empty() {
					one.Kind = by.kind
				}
				one.Namespaces, one.Of, found = by.namespaces, by.kind, true
				if !one.Kind.Empty() {
					all = append(all, one)
				}
			}
		}
		if !found && !permission.Kind.Empty() {
			all = append(all, permission)
		}
	}
	return all
}

// OwnRetriever is a controller of which Permissions lacks list and watch. If its Kind is empty, it was not known, and
// the other permissions for its objects are missing too.
type OwnRetriever struct {
	Controller string
	Kind       schema.GroupVersionKind
}

// OwnRetrievers returns the controllers that list and watch by themselves.
func (o *Observers) OwnRetrievers() (all []OwnRetriever) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, by := range o.controlled {
		if by.ownRetriever {
			all = append(all, OwnRetriever{by.controller, by.kind})
		}
	}
	return all
}

// RecordsPermissions reports whether RecordPermissions was called: the program prints its manifests, and does not run.
func (o *Observers) RecordsPermissions() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.records
}

// RequireOf is Require for the objects of the controllers of the Go type T. Which of them has the part is not known: it
// is a function around their handlers.
func RequireOf[T runtime.Object, C interface {
	comparable
	HTTPClient() *http.Client
	KindOf(obj runtime.Object) (schema.GroupVersionKind, error)
}](cluster C, subresource string, verbs ...string) {
	observers := ObserversOf(cluster)
	if observers == nil {
		return
	}
	permission := Permission{Subresource: subresource, Verbs: verbs, Part: reflect.TypeFor[T]()}
	permission.Kind, _ = cluster.KindOf(New[T]()) // empty for unstructured objects
	observers.Require(permission)
}

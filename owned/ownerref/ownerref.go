package ownerref

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// SetController makes owner the controller of child in memory. An object has at most one controller. An existing
// reference to owner is updated in place. References to other owners stay. A foreground deletion of the owner waits
// until the child is gone (blockOwnerDeletion). If the API server has the admission plugin
// OwnerReferencesPermissionEnforcement, as OpenShift has, that requires permission to update the finalizers subresource
// of the owner.
//
// The owner must have been read from the cluster, because the reference needs its uid. The Cluster discovers the
// scope of both kinds, with one request for each group version.
//
// Errors: *AlreadyOwnedError; ErrScope; kube.ErrNotServed; an owner without a uid. SetController does not change
// child then.
func SetController(ctx context.Context, c *client.Client, owner, child kube.Object) error {
	return set(ctx, c, owner, child, true)
}

// SetControllerInMemory is SetController without a client and without any request, for functions that compute objects,
// and their tests. The kind of owner is the one in its TypeMeta, otherwise the one that its Go type is registered for
// in scheme, which may be nil for types of k8s.io/api.
//
// It derives the scopes from the objects: an owner without a namespace is cluster-scoped and may own any object; an
// owner in a namespace may own objects in that namespace. So child must have its namespace already. Scopes that Go
// types declare (kube.Scoped) are checked.
//
// Errors: *AlreadyOwnedError; ErrScope; an owner without a kind or a uid. SetControllerInMemory does not change child
// then.
func SetControllerInMemory(scheme *runtime.Scheme, owner, child kube.Object) error {
	refs, err := inMemory(scheme, owner, child)
	if err != nil {
		return fmt.Errorf("set an owner reference: %w", err)
	}
	child.SetOwnerReferences(refs)
	return nil
}

func inMemory(scheme *runtime.Scheme, owner, child kube.Object) ([]metav1.OwnerReference, error) {
	if err := notNil(owner, child); err != nil {
		return nil, err
	}
	ownerKind, err := kindIn(scheme, owner)
	if err != nil {
		return nil, fmt.Errorf("owner %s: %w", kube.KeyOf(owner), err)
	}
	childKind, err := kindIn(scheme, child)
	if err != nil {
		childKind.Kind = reflect.TypeOf(child).String() // for messages only
	}
	p := pair{ownerKind: ownerKind, childKind: childKind}
	if err := p.validate(owner, child); err != nil {
		return nil, err
	}
	if ownerNamespaced, declared := apiobject.DeclaredScopeOf(owner, ownerKind, scheme); declared &&
		ownerNamespaced != (owner.GetNamespace() != "") {
		return nil, fmt.Errorf("the namespace of %s is %q, and its Go type declares NamespaceScoped: %t",
			describe(ownerKind, owner), owner.GetNamespace(), ownerNamespaced)
	}
	if owner.GetNamespace() != "" {
		childNamespaced, declared := apiobject.DeclaredScopeOf(child, childKind, scheme)
		if !declared {
			childNamespaced = child.GetNamespace() != ""
		}
		if err := p.validateNamespace(owner, child, childNamespaced); err != nil {
			return nil, err
		}
	}
	return p.references(owner, child, true)
}

// kindIn returns the kind of obj, as kube.Cluster.KindOf does, from scheme.
func kindIn(scheme *runtime.Scheme, obj kube.Object) (schema.GroupVersionKind, error) {
	if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "" && kind.Version != "" {
		return kind, nil
	}
	if scheme != nil {
		if kinds, _, err := scheme.ObjectKinds(obj); err == nil {
			return kinds[0], nil
		}
	}
	if kind, ok := apiobject.BuiltinKind(obj); ok {
		return kind, nil
	}
	return schema.GroupVersionKind{},
		fmt.Errorf("the kind of a %T is unknown: register its type in the scheme, or set its apiVersion and kind", obj)
}

// Set adds owner to the owners of child in memory. The garbage collector deletes child when its last owner is
// gone. If owner is the controller of child, it becomes a plain owner.
//
// Errors: those of SetController except *AlreadyOwnedError.
func Set(ctx context.Context, c *client.Client, owner, child kube.Object) error {
	return set(ctx, c, owner, child, false)
}

func set(ctx context.Context, c *client.Client, owner, child kube.Object, controller bool) error {
	refs, err := withReference(ctx, c, owner, child, controller)
	if err != nil {
		return fmt.Errorf("set an owner reference: %w", err)
	}
	child.SetOwnerReferences(refs)
	return nil
}

// withReference returns a copy of the references of child with exactly one to owner. It does not change child.
func withReference(
	ctx context.Context, c *client.Client, owner, child kube.Object, controller bool,
) ([]metav1.OwnerReference, error) {
	p, err := validatePair(ctx, c, owner, child)
	if err != nil {
		return nil, err
	}
	return p.references(owner, child, controller)
}

// references returns a copy of the references of child with exactly one to owner.
func (p pair) references(owner, child kube.Object, controller bool) ([]metav1.OwnerReference, error) {
	ref := metav1.OwnerReference{
		APIVersion: p.ownerKind.GroupVersion().String(), Kind: p.ownerKind.Kind, Name: owner.GetName(),
		UID: owner.GetUID(),
	}
	if controller {
		ref.Controller, ref.BlockOwnerDeletion = new(true), new(true)
	}
	refs := slices.Clone(child.GetOwnerReferences())
	if present := metav1.GetControllerOfNoCopy(child); controller && present != nil && present.UID != ref.UID {
		return nil, &AlreadyOwnedError{
			kind: p.childKind, key: kube.KeyOf(child), Controller: *present,
			Former: kindOfRef(*present) == p.ownerKind.GroupKind() && present.Name == ref.Name,
		}
	}
	at := indexOf(refs, owner)
	if at < 0 {
		return append(refs, ref), nil
	}
	refs[at] = ref
	// Tools that compare API versions may have added the owner twice.
	return append(refs[:at+1], without(refs[at+1:], owner)...), nil
}

// pair contains the kinds of an owner and a child.
type pair struct {
	ownerKind, childKind schema.GroupVersionKind
}

// validatePair returns an error unless child may have a reference to owner.
func validatePair(ctx context.Context, c *client.Client, owner, child kube.Object) (pair, error) {
	var p pair
	if c == nil {
		return p, errors.New("the client is nil: client.New makes one")
	}
	if err := notNil(owner, child); err != nil {
		return p, err
	}
	var errOwner, errChild error
	p.ownerKind, errOwner = c.Cluster().KindOf(owner)
	p.childKind, errChild = c.Cluster().KindOf(child)
	switch {
	case errOwner != nil:
		return p, fmt.Errorf("owner %s: %w", kube.KeyOf(owner), errOwner)
	case errChild != nil:
		return p, fmt.Errorf("child %s: %w", kube.KeyOf(child), errChild)
	}
	if err := p.validate(owner, child); err != nil {
		return p, err
	}
	ownerResource, err := c.Cluster().Resource(ctx, p.ownerKind)
	if err != nil {
		return p, fmt.Errorf("owner %s: %w", kube.KeyOf(owner), err)
	}
	childResource, err := c.Cluster().Resource(ctx, p.childKind)
	if err != nil {
		return p, fmt.Errorf("child %s: %w", kube.KeyOf(child), err)
	}
	switch {
	case ownerResource.Namespaced && owner.GetNamespace() == "":
		c.Cluster().Forget(p.ownerKind.GroupVersion()) // the definition may be replaced by one with another scope
		return p, fmt.Errorf("%s has no namespace, but its kind is namespaced", describe(p.ownerKind, owner))
	case !ownerResource.Namespaced:
		return p, nil
	case !childResource.Namespaced && child.GetNamespace() != "":
		c.Cluster().Forget(p.childKind.GroupVersion())
	}
	return p, p.validateNamespace(owner, child, childResource.Namespaced)
}

func notNil(owner, child kube.Object) error {
	switch {
	case usercode.IsNil(owner):
		return errors.New("the owner is nil")
	case usercode.IsNil(child):
		return errors.New("the child is nil")
	}
	return nil
}

// validate returns an error if owner cannot own child, whatever their scopes are.
func (p pair) validate(owner, child kube.Object) error {
	switch ownerText := describe(p.ownerKind, owner); {
	case owner.GetUID() == "" || owner.GetName() == "":
		return fmt.Errorf("%s has no uid, which identifies an owner: use an object that was read from the cluster",
			ownerText)
	case owner.GetUID() == child.GetUID():
		return fmt.Errorf("%s would own itself", ownerText)
	}
	return nil
}

// validateNamespace returns an error unless child is in the namespace of the namespaced owner.
func (p pair) validateNamespace(owner, child kube.Object, namespaced bool) error {
	ownerText, childText := describe(p.ownerKind, owner), describe(p.childKind, child)
	switch {
	case !namespaced:
		return fmt.Errorf("%w: %s lives in no namespace, and %s in one: the garbage collector would not find the "+
			"owner, and would delete the child",
			ErrScope, childText, ownerText)
	case child.GetNamespace() != owner.GetNamespace():
		return fmt.Errorf("%w: %s is not in the namespace of %s: the garbage collector would not find the owner, and "+
			"would delete the child",
			ErrScope, childText, ownerText)
	}
	return nil
}

func describe(kind schema.GroupVersionKind, obj metav1.Object) string {
	return kind.Kind + " " + kube.KeyOf(obj).String()
}

// Remove removes the references to owner from child in memory. It reports whether child had one. It compares uids: an
// object that was deleted and created again is another owner.
func Remove(owner, child metav1.Object) (removed bool) {
	refs := child.GetOwnerReferences()
	if indexOf(refs, owner) < 0 {
		return false
	}
	child.SetOwnerReferences(without(refs, owner))
	return true
}

// kindOfRef returns the kind of the referenced owner.
func kindOfRef(ref metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

func indexOf(refs []metav1.OwnerReference, owner metav1.Object) int {
	uid := owner.GetUID()
	if uid == "" {
		return -1
	}
	return slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

// without returns the references in refs to other owners, or nil if there are none. It does not change refs.
func without(refs []metav1.OwnerReference, owner metav1.Object) []metav1.OwnerReference {
	var remaining []metav1.OwnerReference
	for _, ref := range refs {
		if ref.UID != owner.GetUID() {
			remaining = append(remaining, ref)
		}
	}
	return remaining
}

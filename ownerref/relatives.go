package ownerref

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/gotype"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ChildrenOf iterates over the objects of type T that owner controls, as client.List does: in owner's namespace,
// or in all namespaces if owner is cluster-scoped. It makes no request if an informer of the client covers these
// objects. Otherwise it reads every object of the namespace: use client.LabelSelector to reduce them.
//
// Options: those of client.List except InNamespace.
func ChildrenOf[T kube.Object](ctx context.Context, c *client.Client, owner metav1.Object, options ...client.Option) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if usercode.IsNil(owner) || owner.GetUID() == "" {
			var none T
			yield(none, errors.New("list children: the owner has no uid, which identifies an owner: use an object that was read from the cluster"))
			return
		}
		var selected []client.Option
		if owner.GetNamespace() != "" {
			selected = append(selected, client.InNamespace(owner.GetNamespace()))
		}
		for obj, err := range client.List[T](ctx, c, append(selected, options...)...) {
			if err != nil {
				yield(obj, fmt.Errorf("list children of %s: %w", kube.KeyOf(owner), err))
				return
			}
			if IsControlledBy(obj, owner) && !yield(obj, nil) {
				return
			}
		}
	}
}

// Controller returns the controller of child if it is of type T. It reads an informer of the client that has
// these objects, otherwise the API server. found is false if child has no controller of this kind, and if the
// controller was deleted, also if it was created again with the same name. A T that is unstructured or
// PartialObjectMetadata accepts every kind.
func Controller[T kube.Object](ctx context.Context, c *client.Client, child metav1.Object) (owner T, found bool, err error) {
	var none T
	switch {
	case c == nil:
		return none, false, errors.New("read the controller: the client is nil: client.New makes one")
	case usercode.IsNil(child):
		return none, false, errors.New("read the controller: the child is nil")
	}
	ref, ok := ControllerOf(child)
	if !ok {
		return none, false, nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if typeKind, known := kindOf[T](c); known {
		if typeKind.GroupKind() != kind.GroupKind() {
			return none, false, nil
		}
		kind = typeKind // T's version may differ from the reference's
	}
	resource, err := c.Cluster().Resource(ctx, kind)
	if err != nil {
		return none, false, fmt.Errorf("read the controller of %s: %w", kube.KeyOf(child), err)
	}
	key := kube.Key{Name: ref.Name}
	if resource.Namespaced {
		key.Namespace = child.GetNamespace()
	}
	owner, err = client.Get[T](ctx, c, key, client.OfKind(kind))
	switch {
	case errors.Is(err, client.ErrGone):
		return none, false, nil
	case err != nil:
		return none, false, fmt.Errorf("read the controller of %s: %w", kube.KeyOf(child), err)
	}
	if owner.GetUID() != ref.UID {
		return none, false, nil
	}
	return owner, true, nil
}

// kindOf returns the kind of type T, and whether the type determines it. It returns false for an interface, for
// which client.Get returns the error.
func kindOf[T kube.Object](c *client.Client) (kind schema.GroupVersionKind, known bool) {
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return kind, false
	}
	kind, err := c.Cluster().KindOf(gotype.New[T]())
	return kind, err == nil
}

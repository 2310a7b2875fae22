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
	"github.com/evenkeel-go/evenkeel/kube"
)

// ChildrenOf iterates over the objects of type T whose controller is owner: as client.List with
// the same options does, in owner's namespace, or in all when it lives in none. Where an informer
// of the client covers that, no request is made; otherwise every object of the namespace is
// read, so that a label selector (client.LabelSelector) is worth having.
//
// Options: those of client.List but InNamespace.
func ChildrenOf[T kube.Object](ctx context.Context, c *client.Client, owner metav1.Object, options ...client.Option) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if kube.IsNil(owner) || owner.GetUID() == "" {
			var none T
			yield(none, errors.New("list children: the owner has no uid, by which owners are known: use an object that was read from the cluster"))
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

// Controller reads the controller of child, if that is of type T: from an informer of the client,
// where one has it, otherwise from the API server. found is false when child has no controller
// of that kind, and when the controller is gone, or is another object of that name by now.
// For a T that is unstructured or metadata only, a controller of any kind is read.
func Controller[T kube.Object](ctx context.Context, c *client.Client, child metav1.Object) (owner T, found bool, err error) {
	var none T
	switch {
	case c == nil:
		return none, false, errors.New("read the controller: the client is nil: client.New makes one")
	case kube.IsNil(child):
		return none, false, errors.New("read the controller: the child is nil")
	}
	ref, ok := ControllerOf(child)
	if !ok {
		return none, false, nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if own, tells := kindOf[T](c); tells {
		if own.GroupKind() != kind.GroupKind() {
			return none, false, nil
		}
		kind = own // in the version that T is of
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

// kindOf returns the kind of the objects of type T, if the type tells. Get tells what is wrong with
// an interface.
func kindOf[T kube.Object](c *client.Client) (kind schema.GroupVersionKind, tells bool) {
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return kind, false
	}
	kind, err := c.Cluster().KindOf(kube.New[T]())
	return kind, err == nil
}

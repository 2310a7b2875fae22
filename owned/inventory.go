package owned

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// takeInventory finds all that carries the labels of the owner's children. With live, the API server
// is asked, and nothing that is remembered is believed.
func (p *pass) takeInventory(ctx context.Context, live bool) error {
	var errs []error
	for _, kind := range p.set.config.Kinds {
		if !live && p.set.missing.has(kind.GroupKind()) {
			continue
		}
		if err := p.takeInventoryOf(ctx, kind, live); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("find the children there are: %w", err)
	}
	return nil
}

func (p *pass) takeInventoryOf(ctx context.Context, kind schema.GroupVersionKind, live bool) error {
	const tries = 2 // a version that is served no longer is forgotten when a list says so
	var err error
	for range tries {
		var resource kube.Resource
		// Also in other versions: the objects do not go with the version in which the program knows them.
		resource, err = p.client.Cluster().ResourceInAnyVersion(ctx, kind)
		if errors.Is(err, kube.ErrNotServed) {
			p.set.missing.note(kind.GroupKind())
			return nil // so there are no objects of it either
		}
		if err != nil {
			return err
		}
		err = p.listInventory(ctx, kind.GroupKind().WithVersion(resource.Version), resource.Namespaced, live)
		if !errors.Is(err, kube.ErrNotServed) {
			break
		}
	}
	return err
}

// listInventory finds the owner's children of a kind, in a version that is served.
func (p *pass) listInventory(ctx context.Context, kind schema.GroupVersionKind, namespaced, live bool) error {
	namespaces := []string{metav1.NamespaceAll}
	if namespaced {
		namespaces = p.set.config.namespacesOf(p.owner)
	}
	for _, namespace := range namespaces {
		selected := []client.ListOption{client.OfKind(kind), client.WithLabels(p.set.labelsOf(p.owner))}
		if live {
			selected = append(selected, client.FromAPI())
		}
		if namespace != metav1.NamespaceAll {
			selected = append(selected, client.InNamespace(namespace))
		}
		for obj, err := range client.List[*metav1.PartialObjectMetadata](ctx, p.client, selected...) {
			if err != nil {
				return err
			}
			p.found[identity{kind.GroupKind(), kube.KeyOf(obj)}] = obj
		}
	}
	return nil
}

// lookUp returns what is known to be in the place of a child: nil for nothing. It makes no request:
// a child is created only if the API server finds nothing in its place.
func (p *pass) lookUp(ctx context.Context, i *item) (*metav1.PartialObjectMetadata, error) {
	if obj, ok := p.found[i.identity()]; ok {
		return obj, nil
	}
	if !p.isCovered(i) {
		return nil, nil
	}
	obj, err := client.Get[*metav1.PartialObjectMetadata](ctx, p.client, kube.KeyOf(i.object), client.OfKind(i.kind))
	if errors.Is(err, client.ErrGone) {
		return nil, nil
	}
	return obj, err
}

// getLive reads what is in the place of a child from the API server.
func (p *pass) getLive(ctx context.Context, i *item) (*metav1.PartialObjectMetadata, error) {
	return client.Get[*metav1.PartialObjectMetadata](ctx, p.client, kube.KeyOf(i.object), client.OfKind(i.kind), client.FromAPI())
}

// isCovered reports whether an informer shows what is in the place of a child, whoever's it is.
func (p *pass) isCovered(i *item) bool {
	for _, informer := range p.client.Config().Informers {
		if untyped := informer.Untyped(); untyped.Kind() == i.kind && untyped.Covers(i.object.GetNamespace(), nil) {
			return true
		}
	}
	return false
}

// metadataOnly returns what requests need to know of an object.
func metadataOnly(kind schema.GroupVersionKind, obj metav1.Object) *metav1.PartialObjectMetadata {
	known := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}}
	known.SetGroupVersionKind(kind)
	return known
}

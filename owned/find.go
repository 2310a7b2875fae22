package owned

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// findChildren finds all objects with the labels of the owner's children. With live, it reads them from the API server,
// and requests also kinds that were not served before.
func (p *pass) findChildren(ctx context.Context, live bool) error {
	if !p.plan {
		if err := p.claim(); err != nil {
			return err
		}
	}
	var errs []error
	for _, kind := range p.set.config.Kinds {
		if !live && !p.set.isServed(kind.GroupKind()) {
			continue
		}
		if err := p.findChildrenOfKind(ctx, kind, live); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("find existing children: %w", err)
	}
	return nil
}

func (p *pass) findChildrenOfKind(ctx context.Context, kind schema.GroupVersionKind, live bool) error {
	var options []client.ReadOption
	if live {
		options = append(options, client.FromAPI())
	}
	return p.findOfKind(ctx, kind, labels.Set(p.set.labelsOf(p.owner)).String(),
		func(*metav1.PartialObjectMetadata) bool { return true }, options...)
}

// findOfKind finds the selected objects of a kind in the namespaces of the owner's children for which isChild returns
// true.
func (p *pass) findOfKind(
	ctx context.Context, kind schema.GroupVersionKind, selector string,
	isChild func(*metav1.PartialObjectMetadata) bool, options ...client.ReadOption,
) error {
	const attempts = 2 // the first list may fail because the cluster no longer serves the cached version
	var err error
	for range attempts {
		var resource kube.Resource
		// Any version: the objects exist also if the cluster does not serve the version that the program uses.
		resource, err = p.client.Cluster().ResourceInAnyVersion(ctx, kind)
		if errors.Is(err, kube.ErrNotServed) {
			p.set.setServed(kind.GroupKind(), false)
			return nil // a kind that is not served has no objects
		}
		if err != nil {
			return err
		}
		selection := kube.Selection{Kind: kind.GroupKind().WithVersion(resource.Version), LabelSelector: selector}
		if resource.Namespaced {
			selection.Namespaces = p.set.config.namespacesOf(p.owner, p.client.Cluster().Namespaces())
		}
		var obj *metav1.PartialObjectMetadata
		for obj, err = range client.List[*metav1.PartialObjectMetadata](ctx, p.client, selection, options...) {
			if err == nil && isChild(obj) {
				p.found[identity{kind.GroupKind(), kube.KeyOf(obj)}] = obj
			}
		}
		if !errors.Is(err, kube.ErrNotServed) {
			break
		}
	}
	return err
}

// lookUp returns the last known state of the object with the name of a child; nil if no such object is known. It makes
// no request, because a child is created only if the API server has no object with its name.
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

// getLive reads the object with the name of a child from the API server.
func (p *pass) getLive(ctx context.Context, i *item) (*metav1.PartialObjectMetadata, error) {
	return client.Get[*metav1.PartialObjectMetadata](ctx, p.client, kube.KeyOf(i.object), client.OfKind(i.kind),
		client.FromAPI())
}

// isCovered reports whether an informer shows the object with the name of a child, whether or not it belongs to the
// set.
func (p *pass) isCovered(i *item) bool {
	for _, informer := range p.client.Config().Informers {
		if untyped := cache.Of(informer); untyped.Kind() == i.kind && untyped.Covers(i.object.GetNamespace(), nil) {
			return true
		}
	}
	return false
}

// metadataOnly returns the metadata that identifies an object, and its version, for requests.
func metadataOnly(kind schema.GroupVersionKind, obj metav1.Object) *metav1.PartialObjectMetadata {
	known := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}}
	known.SetGroupVersionKind(kind)
	return known
}

package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// findFormerChildren finds children without the labels of a set (Config.FormerChildren), once for each owner.
func (p *pass) findFormerChildren(ctx context.Context) error {
	selector := p.set.config.FormerChildren
	if selector == "" || p.set.searched.Get(p.owner.GetUID()) {
		return nil
	}
	for _, kind := range p.set.config.Kinds {
		if !p.set.isServed(kind.GroupKind()) {
			continue
		}
		resource, err := p.client.Cluster().ResourceInAnyVersion(ctx, kind)
		if errors.Is(err, kube.ErrNotServed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find former children: %w", err)
		}
		served := kind.GroupKind().WithVersion(resource.Version)
		namespaces := []string{metav1.NamespaceAll}
		if resource.Namespaced {
			namespaces = p.set.config.namespacesOf(p.owner)
		}
		for _, namespace := range namespaces {
			options := []client.ListOption{client.OfKind(served), client.LabelSelector(selector), client.FromAPI()}
			if namespace != metav1.NamespaceAll {
				options = append(options, client.InNamespace(namespace))
			}
			for obj, err := range client.List[*metav1.PartialObjectMetadata](ctx, p.client, options...) {
				if err != nil {
					return fmt.Errorf("find former children: %w", err)
				}
				if p.set.isFormerChild(p.owner, obj) {
					p.found[identity{kind.GroupKind(), kube.KeyOf(obj)}] = obj
				}
			}
		}
	}
	return nil
}

// isFormerChild reports whether an object without labels of a set certainly belongs to the owner: the owner is its
// controller, and one of Config.FormerManagers has written it.
func (s *Set) isFormerChild(owner, obj metav1.Object) bool {
	if _, inSet := obj.GetLabels()[LabelSet]; inSet || s.config.FormerChildren == "" {
		return false
	}
	ref := metav1.GetControllerOf(obj)
	if ref == nil || ref.UID != owner.GetUID() {
		return false
	}
	for _, entry := range obj.GetManagedFields() {
		if slices.Contains(s.config.FormerManagers, entry.Manager) {
			return true
		}
	}
	return false
}

// noteSearched records that the owner has no former children anymore.
func (p *pass) noteSearched() {
	if p.set.config.FormerChildren != "" {
		p.set.searched.Do(p.owner.GetUID(), func(searched *bool) { *searched = true })
	}
}

// minSearchedFor is the minimum time for which an owner is stored after its last run.
const minSearchedFor = 12 * time.Hour

package owned

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// findFormerChildren finds children without the labels of a set (Former.Children), once for each owner.
func (p *pass) findFormerChildren(ctx context.Context) error {
	selector := p.set.config.Former.Children
	if selector == "" || p.set.searched.Get(p.owner.GetUID()) {
		return nil
	}
	for _, kind := range p.set.config.Kinds {
		if !p.set.isServed(kind.GroupKind()) {
			continue
		}
		isChild := func(obj *metav1.PartialObjectMetadata) bool { return p.set.isFormerChild(p.owner, obj) }
		if err := p.findOfKind(ctx, kind, selector, isChild, client.FromAPI()); err != nil {
			return fmt.Errorf("find former children: %w", err)
		}
	}
	return nil
}

// isFormerChild reports whether an object without labels of a set certainly belongs to the owner: the owner is its
// controller, and one of Former.Managers has written it.
func (s *Set) isFormerChild(owner, obj metav1.Object) bool {
	if _, inSet := obj.GetLabels()[LabelSet]; inSet || s.config.Former.Children == "" {
		return false
	}
	ref := metav1.GetControllerOf(obj)
	if ref == nil || ref.UID != owner.GetUID() {
		return false
	}
	for _, entry := range obj.GetManagedFields() {
		if slices.Contains(s.config.Former.Managers, entry.Manager) {
			return true
		}
	}
	return false
}

// noteSearched records that the owner has no former children anymore.
func (p *pass) noteSearched() {
	if p.set.config.Former.Children != "" {
		p.set.searched.Do(p.owner.GetUID(), func(searched *bool) { *searched = true })
	}
}

// minSearchedFor is the minimum time for which an owner is stored after its last run.
const minSearchedFor = 12 * time.Hour

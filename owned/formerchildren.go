package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// findFormerChildren finds children without the labels of a set (Config.FormerChildren), once for each owner.
func (p *pass) findFormerChildren(ctx context.Context) error {
	selector := p.set.config.FormerChildren
	if selector == "" || p.set.searched.has(p.owner.GetUID()) {
		return nil
	}
	for _, kind := range p.set.config.Kinds {
		if p.set.notServed.has(kind.GroupKind()) {
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
		p.set.searched.add(p.owner.GetUID())
	}
}

// minSearchedFor is the minimum time for which an owner is stored after its last run.
const minSearchedFor = 12 * time.Hour

// searchedOwners stores the uids of owners without former children. It drops owners that are not handled anymore.
type searchedOwners struct {
	mu              sync.Mutex
	recent, earlier map[types.UID]bool // guarded by mu
	since           time.Time          // the start of recent; guarded by mu
}

func (s *searchedOwners) has(owner types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if s.earlier[owner] {
		s.recent[owner] = true
	}
	return s.recent[owner]
}

func (s *searchedOwners) add(owner types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.recent[owner] = true
}

// expire drops the owners that were not handled for minSearchedFor. s.mu must be held.
func (s *searchedOwners) expire() {
	if s.recent == nil || time.Since(s.since) > minSearchedFor {
		s.earlier, s.recent, s.since = s.recent, map[types.UID]bool{}, time.Now()
	}
}

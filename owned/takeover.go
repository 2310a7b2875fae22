package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// takenOver is the value of AnnotationTakenOver; "" when there are no former managers.
func (c Config) takenOver() string { return strings.Join(c.FormerManagers, ",") }

// mustTakeOver reports whether former managers may still have fields of a child.
func (p *pass) mustTakeOver(i *item, live metav1.Object) bool {
	return len(p.set.config.FormerManagers) > 0 && !i.CreateOnly &&
		live.GetAnnotations()[annotationTakenOver] != p.set.config.takenOver()
}

// takeOver makes the set the applier of what former managers have written to a child, in the state
// that is read now, and returns the child after that. The apply that follows notes that it was done.
func (p *pass) takeOver(ctx context.Context, i *item) (*metav1.PartialObjectMetadata, error) {
	live, err := p.getLive(ctx, i)
	if err != nil {
		return nil, err
	}
	if ownership, holder := p.set.ownershipOf(p.owner, live); ownership != own && (ownership != orphan || !p.set.config.AdoptOrphans) {
		return nil, &ForeignError{Kind: i.kind, Key: kube.KeyOf(live), Holder: holder, Orphan: ownership == orphan}
	}
	took, err := client.TakeOver(ctx, p.client, metadataOnly(i.kind, live), p.set.config.FormerManagers, client.IfUnchanged())
	if err != nil || !took {
		return live, err
	}
	return p.getLive(ctx, i)
}

// planTakeOver adds to the result of a dry run what would be removed after a take-over.
func (p *pass) planTakeOver(ctx context.Context, i *item) error {
	live, err := client.Get[*unstructured.Unstructured](ctx, p.client, i.result.Key, client.OfKind(i.kind), client.FromAPI())
	if err != nil {
		return err
	}
	left, err := client.LeftFields(ctx, p.client, live, i.result.Object, p.set.config.FormerManagers)
	if err == nil && len(left) > 0 {
		i.result.Outcome = Updated
		i.result.Changed = append(i.result.Changed, left...)
		slices.SortStableFunc(i.result.Changed, func(a, b client.FieldChange) int { return strings.Compare(a.Path, b.Path) })
	}
	return err
}

// isFormerConflict reports whether an apply was refused because of former managers' fields only.
func (c Config) isFormerConflict(err error) bool {
	conflict, ok := errors.AsType[*client.ConflictError](err)
	return ok && !slices.ContainsFunc(conflict.Conflicts, func(f client.FieldConflict) bool { return !slices.Contains(c.FormerManagers, f.Manager) })
}

// maxLeftShown is how many left fields a note names.
const maxLeftShown = 5

// reportLeft notes which fields stay because earlier versions of the program have written them by
// Update. The child was applied, so it does not fail when they cannot be found.
func (p *pass) reportLeft(ctx context.Context, i *item, managers []string) {
	if len(managers) == 0 || p.plan {
		return
	}
	left, err := client.LeftFields(ctx, p.client, i.result.Object, i.result.Object, managers)
	if err != nil {
		p.set.config.Logger.WarnContext(ctx, "failed to look for fields of former managers",
			"owner", p.String(), "child", i.result.String(), "managers", managers, "error", err)
	}
	if len(left) == 0 {
		return
	}
	var paths []string
	for _, field := range left {
		if len(paths) == maxLeftShown {
			paths = append(paths, fmt.Sprintf("and %d more", len(left)-maxLeftShown))
			break
		}
		paths = append(paths, field.Path)
	}
	i.result.Note = fmt.Sprintf("fields that %s wrote by Update stay: %s; Config.FormerManagers removes them",
		strings.Join(managers, " and "), strings.Join(paths, ", "))
	p.set.config.Logger.WarnContext(ctx, "a child keeps fields of former managers",
		"owner", p.String(), "child", i.result.String(), "managers", managers, "fields", paths)
}

// searchedFor is how long an owner is remembered at least that is not handled any more.
const searchedFor = 12 * time.Hour

// searched remembers owners by uid, as long as they are handled.
type searched struct {
	mu         sync.Mutex
	young, old map[types.UID]bool // guarded by mu
	since      time.Time          // of young; guarded by mu
}

func (s *searched) has(owner types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	if s.old[owner] {
		s.young[owner] = true
	}
	return s.young[owner]
}

func (s *searched) add(owner types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	s.young[owner] = true
}

// forget drops the owners that were not handled for searchedFor. s.mu must be held.
func (s *searched) forget() {
	if s.young == nil || time.Since(s.since) > searchedFor {
		s.old, s.young, s.since = s.young, map[types.UID]bool{}, time.Now()
	}
}

// findFormer finds children that carry no labels of a set, once for each owner.
func (p *pass) findFormer(ctx context.Context) error {
	selector := p.set.config.FormerChildren
	if selector == "" || p.set.searched.has(p.owner.GetUID()) {
		return nil
	}
	for _, kind := range p.set.config.Kinds {
		if p.set.missing.has(kind.GroupKind()) {
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
			selected := []client.ListOption{client.OfKind(served), client.LabelSelector(selector), client.FromAPI()}
			if namespace != metav1.NamespaceAll {
				selected = append(selected, client.InNamespace(namespace))
			}
			for obj, err := range client.List[*metav1.PartialObjectMetadata](ctx, p.client, selected...) {
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

// noteSearched notes that the owner has no former children any more.
func (p *pass) noteSearched() {
	if p.set.config.FormerChildren != "" {
		p.set.searched.add(p.owner.GetUID())
	}
}

// isFormerChild reports whether an object that belongs to no set is certainly the owner's: its
// controller is the owner, and one of Config.FormerManagers has written it.
func (s *Set) isFormerChild(owner, obj metav1.Object) bool {
	if _, ofSet := obj.GetLabels()[LabelSet]; ofSet || s.config.FormerChildren == "" {
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

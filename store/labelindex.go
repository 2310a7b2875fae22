package store

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// maxLabelIndexes limits the keys of labels that are indexed, so that selectors of an
// endless variety (from users' requests, say) cannot fill the memory. Selectors with other
// keys are answered by reading the objects.
const maxLabelIndexes = 16

// indexable returns the requirements of the selector that an index can answer.
// None is true when the selector matches nothing.
func indexable(selector labels.Selector) (requirements labels.Requirements, all, none bool) {
	if selector == nil {
		return nil, true, false
	}
	every, selectable := selector.Requirements()
	if !selectable {
		return nil, true, true
	}
	for _, r := range every {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			requirements = append(requirements, r)
		}
	}
	return requirements, len(requirements) == len(every), false
}

// ensureLabelIndexes builds the indexes for the keys of the requirements that are not
// there yet. Writers go on meanwhile; other readers that need an index wait.
func (s *Store) ensureLabelIndexes(requirements labels.Requirements) {
	if s.allIndexed(requirements) {
		return
	}
	s.building.Lock()
	defer s.building.Unlock()
	if b := s.beginBuild(requirements); b != nil {
		b.enter()
		b.finish()
	}
}

// build makes indexes of labels from a view of the store, and then makes up for what was
// written to the store since the view was taken.
type build struct {
	store *Store
	view  view
	fresh map[string]*inverted
}

// beginBuild needs building. It returns nil when there is nothing to build.
func (s *Store) beginBuild(requirements labels.Requirements) *build {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := map[string]*inverted{}
	for _, r := range requirements {
		if s.terms.labels[r.Key()] == nil && len(s.terms.labels)+len(fresh) < maxLabelIndexes {
			fresh[r.Key()] = newInverted()
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	s.terms.dirty = map[uint32]struct{}{}
	return &build{store: s, view: s.share(), fresh: fresh}
}

func (b *build) enter() {
	for slot := range b.view.records() {
		b.change(&b.view, slot, (*inverted).add)
	}
}

func (b *build) finish() {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range s.terms.dirty {
		b.change(&b.view, slot, (*inverted).remove)
		b.change(&s.view, slot, (*inverted).add)
	}
	s.terms.dirty = nil
	maps.Copy(s.terms.labels, b.fresh)
}

// change enters what is in the slot into the indexes, or takes it out.
func (b *build) change(v *view, slot uint32, change func(index *inverted, term uint64, slot uint32)) {
	r, ok := v.ref(slot, b.store.pool)
	if !ok {
		return
	}
	has := b.store.mustFacts(r).labels
	for key, index := range b.fresh {
		if value, found := has[key]; found {
			change(index, b.store.hashes.term(value), slot)
		}
	}
}

// allIndexed says whether no index is to be built for the requirements.
func (s *Store) allIndexed(requirements labels.Requirements) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.terms.labels) >= maxLabelIndexes || !slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return s.terms.labels[r.Key()] == nil
	})
}

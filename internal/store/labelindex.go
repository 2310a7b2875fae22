package store

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// maxLabelIndexes limits the number of indexed label keys, so that arbitrary selectors (for example from users'
// requests) cannot exhaust the memory. Selectors with other keys read the objects.
const maxLabelIndexes = 16

// indexable returns the requirements of the selector that an index can answer. none is true if the selector matches
// nothing.
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

// ensureLabelIndexes builds the missing indexes for the keys of the requirements. Writers continue; other readers that
// need an index wait.
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

// build builds label indexes from a view of the store, and then applies the writes since the view was taken.
type build struct {
	store *Store
	view  view
	fresh map[string]*inverted
}

// beginBuild starts a build, or returns nil if all indexes exist. building must be held.
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

// change adds the object in the slot to the indexes, or removes it.
func (b *build) change(v *view, slot uint32, change func(index *inverted, term uint64, slot uint32)) {
	r, ok := v.ref(slot, b.store.pool)
	if !ok {
		return
	}
	labels := b.store.mustFacts(r).labels
	for key, index := range b.fresh {
		if value, found := labels[key]; found {
			change(index, b.store.hashes.term(value), slot)
		}
	}
}

// allIndexed reports whether all indexes for the requirements exist.
func (s *Store) allIndexed(requirements labels.Requirements) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.terms.labels) >= maxLabelIndexes ||
		!slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
			return s.terms.labels[r.Key()] == nil
		})
}

package store

import (
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

	fresh := map[string]*inverted{}
	s.mu.Lock()
	for _, r := range requirements {
		if s.terms.labels[r.Key()] == nil && len(s.terms.labels)+len(fresh) < maxLabelIndexes {
			fresh[r.Key()] = newInverted()
		}
	}
	if len(fresh) == 0 {
		s.mu.Unlock()
		return
	}
	s.terms.dirty = map[uint32]struct{}{}
	v := s.share()
	s.mu.Unlock()

	for slot := range v.records() {
		s.indexLabels(&v, slot, fresh, (*inverted).add)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range s.terms.dirty {
		s.indexLabels(&v, slot, fresh, (*inverted).remove)
		s.indexLabels(&s.view, slot, fresh, (*inverted).add)
	}
	s.terms.dirty = nil
	for key, index := range fresh {
		s.terms.labels[key] = index
	}
}

// indexLabels enters what is in the slot into the indexes, or takes it out.
func (s *Store) indexLabels(v *view, slot uint32, indexes map[string]*inverted, change func(*inverted, uint64, uint32)) {
	r, ok := v.ref(slot, s.pool)
	if !ok || r.state() == 0 {
		return
	}
	has := s.mustFacts(r).labels
	for key, index := range indexes {
		if value, found := has[key]; found {
			change(index, s.hashes.term(value), slot)
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

package store

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/wire"
)

// fewCandidates is how many objects List remembers one by one. For more it takes a view
// of the whole store, after which each chunk that is written to is copied once.
const fewCandidates = 1024

// filter is a Query that was checked and compiled.
type filter struct {
	Query
	index    int // number of the index; -1: none
	value    uint64
	byLabels bool // labels must be looked at
	indexed  labels.Requirements
	exact    bool // the indexes, if all of them are there, say all about the labels
	nothing  bool // no object can match
}

func (s *Store) compile(q Query) (filter, error) {
	f := filter{Query: q, index: -1}
	if q.Index != "" {
		f.index = slices.IndexFunc(s.indexes, func(i Index) bool { return i.Name == q.Index })
		if f.index < 0 {
			return f, fmt.Errorf("query: there is no index %q", q.Index)
		}
		f.value = s.hashes.value(f.index, q.Value)
	} else if q.Value != "" {
		return f, fmt.Errorf("query: value %q is given without an index", q.Value)
	}
	f.byLabels = q.Labels != nil && !q.Labels.Empty()
	f.indexed, f.exact, f.nothing = indexable(q.Labels)
	return f, nil
}

// sets returns the sets of slots that f is the intersection of, as far as there are
// indexes. Covered is true when nothing else need be looked at. It needs mu.
func (s *Store) sets(f *filter) (sets []set, covered bool) {
	covered = f.exact
	if f.Namespace != "" {
		var members set = &posting{}
		if number, found := s.numbers[f.Namespace]; found {
			members = &s.namespaces[number].objects
		}
		sets = append(sets, members)
	}
	if f.OwnerUID != "" {
		sets = append(sets, s.terms.owners.of(s.hashes.term(string(f.OwnerUID))))
	}
	if f.index >= 0 {
		sets = append(sets, s.terms.values.of(f.value))
	}
	for _, r := range f.indexed {
		index := s.terms.labels[r.Key()]
		if index == nil {
			covered = false
			continue
		}
		var anyOf union
		values := r.ValuesUnsorted()
		slices.Sort(values) // a selector may name one twice, and a union counts it twice
		for _, value := range slices.Compact(values) {
			anyOf = append(anyOf, index.of(s.hashes.term(value)))
		}
		sets = append(sets, anyOf)
	}
	return sets, covered
}

// intersect returns the slots that are in all of the sets, of which there is at least one.
func intersect(sets []set) []uint32 {
	slices.SortFunc(sets, func(a, b set) int { return a.size() - b.size() })
	slots := sets[0].appendTo(make([]uint32, 0, sets[0].size()))
	return slices.DeleteFunc(slots, func(slot uint32) bool {
		return slices.ContainsFunc(sets[1:], func(other set) bool { return !other.contains(slot) })
	})
}

// candidates are the objects that a query may mean, as they were at one moment.
type candidates struct {
	refs []Ref // if all is nil
	// all is a view of the store, and slots those in it that matter; nil: all of them.
	all   *view
	slots []uint32
}

func (c *candidates) each(p *pool, yield func(Ref) bool) {
	for _, r := range c.refs {
		if !yield(r) {
			return
		}
	}
	if c.all == nil {
		return
	}
	if c.slots != nil {
		for _, slot := range c.slots {
			if r, ok := c.all.ref(slot, p); ok && !yield(r) {
				return
			}
		}
		return
	}
	for slot := range c.all.records() {
		if r, ok := c.all.ref(slot, p); ok && !yield(r) {
			return
		}
	}
}

// candidates finds them. It needs mu.
func (s *Store) candidates(f *filter) candidates {
	sets, _ := s.sets(f)
	if len(sets) == 0 {
		v := s.share()
		return candidates{all: &v}
	}
	slots := intersect(sets)
	if len(slots) > fewCandidates {
		v := s.share()
		return candidates{all: &v, slots: slots}
	}
	c := candidates{refs: make([]Ref, len(slots))}
	for i, slot := range slots {
		c.refs[i], _ = s.ref(slot, s.pool)
	}
	return c
}

// List iterates over the objects that q means, as they are when the iteration begins, in
// no order. An object, its Bytes included, is valid until the next iteration; its strings
// may be kept. No lock is held meanwhile. An error is the last that is yielded.
func (s *Store) List(q Query) iter.Seq2[*wire.Object, error] {
	return func(yield func(*wire.Object, error) bool) {
		f, err := s.compile(q)
		if err != nil {
			yield(nil, err)
			return
		}
		if f.nothing {
			return
		}
		s.ensureLabelIndexes(f.indexed)
		s.mu.RLock()
		found := s.candidates(&f)
		s.mu.RUnlock()
		found.list(&f, s.pool, yield)
	}
}

// Count returns how many objects q means. It reads objects only for conditions on labels
// that no index answers.
func (s *Store) Count(q Query) (int, error) {
	f, err := s.compile(q)
	if err != nil || f.nothing {
		return 0, err
	}
	s.ensureLabelIndexes(f.indexed)
	s.mu.RLock()
	n, known := s.countByIndex(&f)
	if known {
		s.mu.RUnlock()
		return n, nil
	}
	found := s.candidates(&f)
	s.mu.RUnlock()
	return found.count(&f, s.pool)
}

func (s *Store) countByIndex(f *filter) (n int, known bool) {
	sets, covered := s.sets(f)
	switch {
	case !covered:
		return 0, false
	case len(sets) == 0:
		return s.live, true
	case len(sets) == 1:
		return sets[0].size(), true
	}
	return len(intersect(sets)), true
}

// list yields the candidates that f means.
func (c *candidates) list(f *filter, p *pool, yield func(*wire.Object, error) bool) {
	scratch := p.get()
	defer p.put(scratch)
	var o wire.Object
	c.each(p, func(r Ref) bool {
		if !f.mayMatch(r) {
			return true
		}
		if err := r.read(&o, scratch); err != nil {
			yield(nil, err)
			return false
		}
		return !f.matches(&o) || yield(&o, nil)
	})
}

func (c *candidates) count(f *filter, p *pool) (n int, err error) {
	if !f.byLabels && f.OwnerUID == "" { // the headers tell all
		c.each(p, func(r Ref) bool {
			if f.mayMatch(r) {
				n++
			}
			return true
		})
		return n, nil
	}
	c.list(f, p, func(_ *wire.Object, e error) bool {
		if err = e; err == nil {
			n++
		}
		return err == nil
	})
	return n, err
}

// mayMatch looks at what the record's header tells.
func (f *filter) mayMatch(r Ref) bool {
	if f.Namespace != "" && r.namespace.name != f.Namespace {
		return false
	}
	if f.index < 0 && f.OwnerUID == "" {
		return true
	}
	h := parse(r.record)
	if f.OwnerUID != "" && h.flags&flagOwned == 0 {
		return false
	}
	if f.index < 0 {
		return true
	}
	for i := range h.valueCount() {
		if h.value(i) == f.value {
			return true
		}
	}
	return false
}

// matches looks at what only the object tells. Indexes find objects by hashes; this is
// where objects drop out that were found only because hashes collide.
func (f *filter) matches(o *wire.Object) bool {
	if f.OwnerUID != "" && !isOwned(o, f.OwnerUID) {
		return false
	}
	return !f.byLabels || f.Labels.Matches(labels.Set(o.Labels()))
}

func isOwned(o *wire.Object, by types.UID) bool {
	for _, owner := range o.OwnerReferences() {
		if owner.UID == by {
			return true
		}
	}
	return false
}

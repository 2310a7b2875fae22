package store

import (
	"fmt"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// fewCandidates is the maximum number of objects that List collects individually. For more it uses a view of the whole
// store, which causes one copy of each chunk that is written to later.
const fewCandidates = 1024

// filter is a validated and compiled Query.
type filter struct {
	Query
	index    int // number of the index, or -1
	value    uint64
	byLabels bool // labels must be checked
	indexed  labels.Requirements
	exact    bool // indexes for all requirements cover the labels completely
	isEmpty  bool // no object can match
}

// compile validates and compiles q for a state of the store that has the indexes.
func (s *Store) compile(q Query, indexes *indexSet) (filter, error) {
	f := filter{Query: q, index: -1}
	if q.Index != "" {
		f.index = slices.IndexFunc(indexes.all, func(i Index) bool { return i.Name == q.Index })
		if f.index < 0 {
			return f, fmt.Errorf("query: there is no index %q", q.Index)
		}
		if f.index >= indexes.complete {
			return f, fmt.Errorf("query: index %q was added, but is not complete", q.Index)
		}
		f.value = s.hashes.value(f.index, q.Value)
	} else if q.Value != "" {
		return f, fmt.Errorf("query: value %q is given without an index", q.Value)
	}
	f.byLabels = q.Labels != nil && !q.Labels.Empty()
	f.indexed, f.exact, f.isEmpty = indexable(q.Labels)
	return f, nil
}

// sets returns the indexed sets of slots; f is a part of their intersection. covered is true if no other condition must
// be checked. mu must be held.
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
		slices.Sort(values) // a selector may contain a duplicate, which a union would count twice
		for _, value := range slices.Compact(values) {
			anyOf = append(anyOf, index.of(s.hashes.term(value)))
		}
		sets = append(sets, anyOf)
	}
	return sets, covered
}

// intersect returns the slots that are in all sets. There must be at least one set.
func intersect(sets []set) []uint32 {
	slices.SortFunc(sets, func(a, b set) int { return a.size() - b.size() })
	slots := sets[0].appendTo(make([]uint32, 0, sets[0].size()))
	return slices.DeleteFunc(slots, func(slot uint32) bool {
		return slices.ContainsFunc(sets[1:], func(other set) bool { return !other.contains(slot) })
	})
}

// candidates are the objects that may match a query, at one time.
type candidates struct {
	// all is a view of the store. If found is nil, slots are the relevant ones in it, or nil for all.
	all   *view
	slots []uint32
	// found are the records, if there are few. all then has no chunks.
	found []string
}

func (c *candidates) each(p *pool, yield func(Ref) bool) {
	switch {
	case c.found != nil:
		for _, record := range c.found {
			if !yield(c.all.open(record, p)) {
				return
			}
		}
	case c.slots != nil:
		for _, slot := range c.slots {
			if r, ok := c.all.ref(slot, p); ok && !yield(r) {
				return
			}
		}
	default:
		for _, record := range c.all.records() {
			if !yield(c.all.open(record, p)) {
				return
			}
		}
	}
}

// candidates returns the candidates for f. mu must be held.
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
	names := s.view
	names.chunks = nil // a view without chunks needs no share
	c := candidates{all: &names, found: make([]string, len(slots))}
	for i, slot := range slots {
		c.found[i] = s.record(slot)
	}
	return c
}

// Find iterates over the objects that q selects, at the start of the iteration, in no particular order. No lock is held
// during the iteration. After an error the iteration ends.
func (s *Store) Find(q Query) iter.Seq2[*Found, error] {
	return func(yield func(*Found, error) bool) { s.yieldFound(q, s.indexes.Load(), s.current, yield) }
}

// Found is an object that a query selects. It is valid until the next iteration.
type Found struct {
	Ref
	scratch *scratch
	object  wire.Object
	isRead  bool // object is set
}

// Object returns the object, which is decompressed by the first call. It and its Bytes are valid until the next
// iteration; its strings may be kept.
func (f *Found) Object() (*wire.Object, error) {
	if !f.isRead {
		if err := f.read(&f.object, f.scratch); err != nil {
			return nil, err
		}
		f.isRead = true
	}
	return &f.object, nil
}

// yieldFound yields the objects that q selects, of those that candidates returns.
func (s *Store) yieldFound(
	q Query, indexes *indexSet, candidates func(*filter) candidates, yield func(*Found, error) bool,
) {
	f, err := s.compile(q, indexes)
	if err != nil {
		yield(nil, err)
		return
	}
	if !f.isEmpty {
		found := candidates(&f)
		found.list(&f, s.pool, yield)
	}
}

// current returns the current candidates for f.
func (s *Store) current(f *filter) candidates {
	s.ensureLabelIndexes(f.indexed)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.candidates(f)
}

// Count returns the number of objects that q selects. It reads objects only for label conditions that no index covers.
func (s *Store) Count(q Query) (int, error) {
	f, err := s.compile(q, s.indexes.Load())
	if err != nil || f.isEmpty {
		return 0, err
	}
	s.ensureLabelIndexes(f.indexed)
	s.mu.RLock()
	n, known := s.countByIndex(&f)
	s.mu.RUnlock()
	if known {
		return n, nil
	}
	found := s.current(&f)
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

// list yields the candidates that match f.
func (c *candidates) list(f *filter, p *pool, yield func(*Found, error) bool) {
	found := &Found{scratch: p.get()}
	defer p.put(found.scratch)
	c.each(p, func(r Ref) bool {
		if !f.mayMatch(&r) {
			return true
		}
		found.Ref, found.isRead = r, false
		if f.needsObject() {
			o, err := found.Object()
			if err != nil {
				yield(nil, err)
				return false
			}
			if !f.matches(o) {
				return true
			}
		}
		return yield(found, nil)
	})
}

func (c *candidates) count(f *filter, p *pool) (n int, err error) {
	if !f.needsObject() {
		c.each(p, func(r Ref) bool {
			if f.mayMatch(&r) {
				n++
			}
			return true
		})
		return n, nil
	}
	c.list(f, p, func(_ *Found, e error) bool {
		if err = e; err == nil {
			n++
		}
		return err == nil
	})
	return n, err
}

// mayMatch checks the conditions on data in the record's header.
func (f *filter) mayMatch(r *Ref) bool {
	if f.Namespace != "" && r.namespace.name != f.Namespace {
		return false
	}
	if f.index < 0 && f.OwnerUID == "" {
		return true
	}
	h := &r.header
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

// needsObject reports whether the headers of records are not sufficient.
func (f *filter) needsObject() bool { return f.byLabels || f.OwnerUID != "" }

// matches checks the conditions that need the object. Indexes find objects by hashes; matches removes those that were
// found only because of a collision.
func (f *filter) matches(o *wire.Object) bool {
	if f.OwnerUID != "" && !isOwned(o, f.OwnerUID) {
		return false
	}
	return !f.byLabels || f.Labels.Matches(labels.Set(o.Labels()))
}

func isOwned(o *wire.Object, by types.UID) bool {
	return slices.ContainsFunc(o.OwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == by })
}

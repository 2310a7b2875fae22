package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/wire"
)

// hashes are the functions behind the tables; tests put weaker ones in their place.
type hashes struct {
	key  func(namespace, name string) uint64
	term func(s string) uint64
	// state is where changes are noticed, so it is never weak.
	state maphash.Seed
}

func newHashes() hashes {
	seed := maphash.MakeSeed()
	return hashes{
		key: func(namespace, name string) uint64 {
			return maphash.String(seed, name) + 31*maphash.String(seed, namespace)
		},
		term:  func(s string) uint64 { return maphash.String(seed, s) },
		state: seed,
	}
}

// value is the term of a value of the i-th index.
func (h *hashes) value(i int, value string) uint64 {
	return h.term(value) + uint64(i)*0x9e3779b97f4a7c15
}

// facts are what the indexes need to know of an object.
type facts struct {
	state  uint64 // tells whether labels or owners are others
	labels map[string]string
	owners []types.UID
	values []uint64
}

// facts asks the indexes' functions too; the error is theirs.
func (s *Store) facts(o *wire.Object) (facts, error) {
	f := s.ownFacts(o)
	var errs []error
	for i, index := range s.indexes {
		values, err := index.Values(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("index %q of %s: %w", index.Name, o.Key, err))
			continue
		}
		for _, value := range values {
			if term := s.hashes.value(i, value); !slices.Contains(f.values, term) {
				f.values = append(f.values, term)
			}
		}
	}
	return f, errors.Join(errs...)
}

func (s *Store) ownFacts(o *wire.Object) facts {
	f := facts{labels: o.Labels()}
	var h maphash.Hash
	h.SetSeed(s.hashes.state)
	for key, value := range f.labels { // in any order, hence a sum
		h.Reset()
		maphash.WriteComparable(&h, [2]string{key, value})
		f.state += h.Sum64()
	}
	for _, owner := range o.OwnerReferences() {
		if owner.UID != "" && !slices.Contains(f.owners, owner.UID) {
			f.owners = append(f.owners, owner.UID)
			f.state += maphash.String(s.hashes.state, string(owner.UID))
		}
	}
	return f
}

// terms are the indexes besides that of namespaces. They are guarded by the store's mu.
type terms struct {
	owners *inverted
	values *inverted            // of all indexes of the user
	labels map[string]*inverted // by the label's key
	// dirty notes the slots that change while an index is built; nil when none is.
	dirty map[uint32]struct{}
}

func newTerms() terms {
	return terms{owners: newInverted(), values: newInverted(), labels: map[string]*inverted{}}
}

func (t *terms) changed(slot uint32) {
	if t.dirty != nil {
		t.dirty[slot] = struct{}{}
	}
}

// add enters an object.
func (t *terms) add(slot uint32, f *facts, h *hashes) {
	for _, value := range f.values {
		t.values.add(value, slot)
	}
	for _, owner := range f.owners {
		t.owners.add(h.term(string(owner)), slot)
	}
	for key, index := range t.labels {
		if value, found := f.labels[key]; found {
			index.add(h.term(value), slot)
		}
	}
}

// reindex replaces what the indexes know of the object in the slot.
func (s *Store) reindex(slot uint32, old Ref, f *facts) {
	h := parse(old.record)
	was := facts{state: h.state}
	for i := range h.valueCount() {
		was.values = append(was.values, h.value(i))
	}
	if was.state == f.state && slices.Equal(was.values, f.values) {
		return
	}
	if h.flags&flagOwned != 0 || was.state != 0 && len(s.terms.labels) > 0 {
		own := s.mustFacts(old)
		was.labels, was.owners = own.labels, own.owners
	}
	for _, value := range was.values {
		s.terms.values.remove(value, slot)
	}
	for _, owner := range was.owners {
		s.terms.owners.remove(s.hashes.term(string(owner)), slot)
	}
	for key, index := range s.terms.labels {
		if value, found := was.labels[key]; found {
			index.remove(s.hashes.term(value), slot)
		}
	}
	s.terms.add(slot, f, &s.hashes)
}

// mustFacts reads what is known to be readable, because this store wrote it.
func (s *Store) mustFacts(r Ref) facts {
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	var o wire.Object
	if err := r.read(&o, scratch); err != nil {
		panic("store: a record cannot be read that was just written: " + err.Error())
	}
	return s.ownFacts(&o)
}

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
	// state is equal for two states of an object only if labels and owners are equal.
	state  uint64
	values []uint64
	owned  bool // there are owners

	// The rest is there when read is true. It need not be when state did not change.
	read   bool
	labels map[string]string
	owners []types.UID
}

// facts asks the indexes' functions; the error is theirs. Labels and owners are read only
// when that is the way to tell the state.
func (s *Store) facts(o *wire.Object) (facts, error) {
	var f facts
	seed, state := s.hashes.state, uint64(0)
	if o.LabelsAndOwners(func(encoded []byte) { state = state*31 + maphash.Bytes(seed, encoded) }) {
		f.state = state
	} else {
		s.readFacts(o, &f)
		f.state = s.stateOf(&f)
	}
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

// readFacts reads labels and owners, unless they were read.
func (s *Store) readFacts(o *wire.Object, f *facts) {
	if f.read {
		return
	}
	f.read = true
	f.labels = o.Labels()
	for _, owner := range o.OwnerReferences() {
		if owner.UID != "" && !slices.Contains(f.owners, owner.UID) {
			f.owners = append(f.owners, owner.UID)
		}
	}
	f.owned = len(f.owners) > 0
}

func (s *Store) stateOf(f *facts) uint64 {
	var h maphash.Hash
	h.SetSeed(s.hashes.state)
	var state uint64
	for key, value := range f.labels { // in any order, hence a sum
		h.Reset()
		maphash.WriteComparable(&h, [2]string{key, value})
		state += h.Sum64()
	}
	for _, owner := range f.owners {
		state += maphash.String(s.hashes.state, string(owner))
	}
	return state
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

// addValues enters the values of an object, addOwn its labels and owners.
func (t *terms) addValues(slot uint32, f *facts) {
	for _, value := range f.values {
		t.values.add(value, slot)
	}
}

func (t *terms) addOwn(slot uint32, f *facts, h *hashes) {
	for _, owner := range f.owners {
		t.owners.add(h.term(string(owner)), slot)
	}
	for key, index := range t.labels {
		if value, found := f.labels[key]; found {
			index.add(h.term(value), slot)
		}
	}
}

// removeTerms takes an object out. Labels and owners are read only when an index has them.
func (s *Store) removeTerms(slot uint32, old Ref, values, own bool) {
	h := parse(old.record)
	if values {
		for i := range h.valueCount() {
			s.terms.values.remove(h.value(i), slot)
		}
	}
	if !own || h.flags&flagOwned == 0 && len(s.terms.labels) == 0 {
		return
	}
	f := s.mustFacts(old)
	for _, owner := range f.owners {
		s.terms.owners.remove(s.hashes.term(string(owner)), slot)
	}
	for key, index := range s.terms.labels {
		if value, found := f.labels[key]; found {
			index.remove(s.hashes.term(value), slot)
		}
	}
}

// reindex enters what changed when o, of which f are the facts, replaces old.
func (s *Store) reindex(slot uint32, old Ref, o *wire.Object, f *facts) {
	h := parse(old.record)
	values, own := !h.hasValues(f.values), h.state != f.state
	if own {
		s.readFacts(o, f)
	} else {
		f.owned = h.flags&flagOwned != 0
	}
	s.removeTerms(slot, old, values, own)
	if values {
		s.terms.addValues(slot, f)
	}
	if own {
		s.terms.addOwn(slot, f, &s.hashes)
	}
}

// mustFacts reads labels and owners of what is known to be readable, because this store
// wrote it.
func (s *Store) mustFacts(r Ref) facts {
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	if err := r.read(&scratch.object, scratch); err != nil {
		panic("store: a record cannot be read that was just written: " + err.Error())
	}
	var f facts
	s.readFacts(&scratch.object, &f)
	return f
}

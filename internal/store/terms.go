package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// hashes are the hash functions of the tables. Tests replace them by weaker ones.
type hashes struct {
	key  func(namespace, name string) uint64
	term func(s string) uint64
	// state detects changes, so tests must not weaken it.
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

// value returns the term for a value of the i-th index.
func (h *hashes) value(i int, value string) uint64 {
	return h.term(value) + uint64(i)*0x9e3779b97f4a7c15
}

// facts is the data of an object for the indexes.
type facts struct {
	// state is equal for two states of an object only if labels and owners are equal.
	state  uint64
	values []uint64 // sorted
	// indexes is the number of indexes whose functions were called.
	indexes int
	owned   bool // has owners

	// The following fields are set if read is true, which is not necessary while state does not change.
	read   bool
	labels map[string]string
	owners []types.UID
}

// facts calls the indexes' functions, and returns their errors. It reads labels and owners only if the state cannot be
// computed without them.
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
	indexes := s.indexes.Load().all
	f.indexes = len(indexes)
	for i := range indexes {
		values, err := s.valuesOf(i, &indexes[i], o)
		f.values = append(f.values, values...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	slices.Sort(f.values)
	f.values = slices.Compact(f.values)
	return f, errors.Join(errs...)
}

// valuesOf returns the hashes of an object's values in the i-th index. mu must not be held.
func (s *Store) valuesOf(i int, index *Index, o *wire.Object) (hashes []uint64, err error) {
	values, err := index.Values(o)
	if err != nil {
		s.indexFailed(index.Name) // before the object is stored
		return nil, fmt.Errorf("index %q of %s: %w", index.Name, o.Key, err)
	}
	for _, value := range values {
		hashes = append(hashes, s.hashes.value(i, value))
	}
	return hashes, nil
}

// readFacts reads labels and owners, unless they have been read.
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
	for key, value := range f.labels { // in random order, hence a sum
		h.Reset()
		maphash.WriteComparable(&h, [2]string{key, value})
		state += h.Sum64()
	}
	for _, owner := range f.owners {
		state += maphash.String(s.hashes.state, string(owner))
	}
	return state
}

// terms has all indexes except the namespaces. They are guarded by the store's mu.
type terms struct {
	owners *inverted
	values *inverted            // of all indexes of the user
	labels map[string]*inverted // by the label's key
	// dirty contains the slots that change while a label index is built; otherwise nil.
	dirty map[uint32]struct{}
	// written is the same for the slots that change while AddIndex builds an index.
	written map[uint32]struct{}
}

func newTerms() terms {
	return terms{owners: newInverted(), values: newInverted(), labels: map[string]*inverted{}}
}

func (t *terms) changed(slot uint32) {
	if t.dirty != nil {
		t.dirty[slot] = struct{}{}
	}
	if t.written != nil {
		t.written[slot] = struct{}{}
	}
}

// addValues adds the index values of an object, addOwn its labels and owners.
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

// removeTerms removes an object. It reads labels and owners only if an index contains them.
func (s *Store) removeTerms(slot uint32, old *Ref, values, own bool) {
	h := &old.header
	if values {
		for i := range h.valueCount() {
			s.terms.values.remove(h.value(i), slot)
		}
	}
	if !own || h.flags&flagOwned == 0 && len(s.terms.labels) == 0 {
		return
	}
	f := s.mustFacts(*old)
	for _, owner := range f.owners {
		s.terms.owners.remove(s.hashes.term(string(owner)), slot)
	}
	for key, index := range s.terms.labels {
		if value, found := f.labels[key]; found {
			index.remove(s.hashes.term(value), slot)
		}
	}
}

// reindex updates the indexes when o, with the facts f, replaces old.
func (s *Store) reindex(slot uint32, old *Ref, o *wire.Object, f *facts) {
	h := &old.header
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

// mustFacts reads labels and owners of a record, which must be readable because this store wrote it.
func (s *Store) mustFacts(r Ref) facts {
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	if err := r.read(&scratch.object, scratch); err != nil {
		panic("store: a record of this store cannot be read: " + err.Error())
	}
	var f facts
	s.readFacts(&scratch.object, &f)
	return f
}

package store

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config configures a Store. The zero Config is valid.
type Config struct {
	// Indexes are the indexes for Query.Index. Their names must be distinct. Default: none.
	Indexes []Index
}

// Index finds objects by values that a function computes from them.
type Index struct {
	// Name identifies the index in queries. Required.
	Name string
	// Values returns the index values of the object, possibly none. It is called once for each object that is put, in
	// the goroutine that calls Put, without the store's lock. It must not change or keep the object, and must only
	// depend on the object. Required.
	Values func(*wire.Object) ([]string, error)
}

// Query selects the objects that fulfil all conditions that are set. The zero Query selects all objects.
type Query struct {
	// Namespace, if not empty, is the objects' namespace.
	Namespace string
	// Labels, if not nil, must match the objects' labels. The keys of requirements for equality (=, ==, in) are indexed
	// on first use, see the package documentation.
	Labels labels.Selector
	// OwnerUID, if not empty, is the UID of one of the objects' owners.
	OwnerUID types.UID
	// Index, if not empty, is the name of an index of the Config, and Value must be one of its values for the objects.
	Index, Value string
}

// Store keeps the latest known state of objects by key, see the package documentation. It is safe for concurrent use.
//
// It does not compare versions: the caller decides which state is newer.
type Store struct {
	// indexes is replaced by AddIndex, with adding and mu held.
	indexes atomic.Pointer[indexSet]

	// Immutable after New.
	hashes hashes
	hashOf func(slot uint32) uint64 // of the key in the slot; called with mu held
	pool   *pool

	building sync.Mutex // held while a label index is built; acquired before mu
	adding   sync.Mutex // held by AddIndex; acquired before mu

	mu sync.RWMutex
	// Guarded by mu.
	table
	terms    terms
	training training
	marks    marks
	changes  uint64          // number of Puts and Deletes
	failed   map[string]bool // the indexes whose function has failed for an object, by name
	raw      int64           // size of all objects, uncompressed
	kept     int64           // allocated size of all records
}

// New returns an empty store. It panics if an index has no name or no function, or if two have the same name, because
// the set of indexes is part of the program.
func New(config Config) *Store {
	return newStore(config, newHashes(), rand.Uint64())
}

func newStore(config Config, h hashes, seed uint64) *Store {
	for i, index := range config.Indexes {
		if index.Name == "" || index.Values == nil {
			panic(fmt.Sprintf("store: index %d, %q, needs a name and a function", i, index.Name))
		}
		if slices.ContainsFunc(config.Indexes[:i], func(other Index) bool { return other.Name == index.Name }) {
			panic(fmt.Sprintf("store: two indexes are named %q", index.Name))
		}
	}
	s := &Store{
		hashes:   h,
		pool:     &pool{},
		terms:    newTerms(),
		training: training{random: rand.New(rand.NewPCG(seed, seed))},
	}
	s.indexes.Store(&indexSet{all: slices.Clone(config.Indexes), complete: len(config.Indexes)})
	s.numbers = map[string]uint32{}
	s.hashOf = func(slot uint32) uint64 {
		number, name := parseKey(s.record(slot))
		return s.hashes.key(s.namespaces[number].name, name)
	}
	return s
}

// Put stores a copy of o and replaces the state with its key. Afterwards the caller may reuse o and its Bytes. It
// returns the replaced state.
//
// The error contains the errors of the indexes' functions, for errors.Is and errors.As. The object is stored
// nevertheless, but those indexes do not find it.
func (s *Store) Put(o *wire.Object) (old Ref, replaced bool, err error) {
	old, _, err = s.PutIf(o, func(Ref) bool { return true })
	return old, old.Exists(), err
}

// PutIf is like Put, but stores only if accept returns true. accept is called with the stored state for o's key, or the
// zero Ref, without a lock. PutIf returns the replaced and the new state. Both are zero if nothing was stored. If the
// decision depends on the stored state, no other goroutine may put or delete the key concurrently.
func (s *Store) PutIf(o *wire.Object, accept func(kept Ref) bool) (old, current Ref, err error) {
	hash := s.hashes.key(o.Key.Namespace, o.Key.Name)
	// Most of the work is done before the lock, based on the current state.
	s.mu.RLock()
	dictionary := s.training.current
	at := s.placeOf(hash, o.Key)
	s.mu.RUnlock()
	if !accept(at.kept) {
		return Ref{}, Ref{}, nil
	}
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	p := scratch.pack(o, dictionary)

	var trial func()
	for entered := false; !entered; { // more than once only if an index was added meanwhile
		var f facts
		f, err = s.facts(o)
		if !at.kept.Exists() || at.kept.header.state != f.state {
			s.readFacts(o, &f)
		}
		current, trial, entered = s.enter(o, hash, &at, &f, p, scratch)
	}
	if trial != nil {
		trial()
	}
	return at.kept, current, err
}

// HasIndex reports whether the store has a complete index with this name whose function has never failed since New.
// Such an index finds all objects.
func (s *Store) HasIndex(name string) bool {
	indexes := s.indexes.Load()
	if !slices.ContainsFunc(indexes.all[:indexes.complete], func(i Index) bool { return i.Name == name }) {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.failed[name]
}

// indexFailed records that an index does not find an object.
func (s *Store) indexFailed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = map[string]bool{}
	}
	s.failed[name] = true
}

// place is the slot of a key and the state in it. It is valid until the next Put or Delete.
type place struct {
	slot    uint32
	kept    Ref    // zero if no slot has the key
	changes uint64 // Store.changes at that time
}

// placeOf returns the place of a key. mu must be held.
func (s *Store) placeOf(hash uint64, key kube.Key) place {
	at := place{changes: s.changes}
	if _, slot, found := s.find(hash, key); found {
		at.slot, at.kept = slot, s.open(s.record(slot), s.pool)
	}
	return at
}

// enter is the part of Put with mu held. The payload was packed with the earlier current dictionary. at is the earlier
// place of the key, and is set to the present one. enter returns the new state. entered is false, and nothing has
// happened, if f lacks the values of an index that was added meanwhile.
func (s *Store) enter(
	o *wire.Object, hash uint64, at *place, f *facts, p payload, scratch *scratch,
) (current Ref, trial func(), entered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.indexes != len(s.indexes.Load().all) {
		return Ref{}, nil, false
	}
	if p.packedFor != s.training.current {
		p = scratch.pack(o, s.training.current)
	}
	if at.changes != s.changes {
		*at = s.placeOf(hash, o.Key)
	}
	number := s.number(o.Key.Namespace)
	slot := at.slot
	if at.kept.Exists() {
		s.reindex(slot, &at.kept, o, f)
		s.account(&at.kept, -1)
	} else {
		slot = s.newSlot()
		s.readFacts(o, f)
		s.terms.addValues(slot, f)
		s.terms.addOwn(slot, f, &s.hashes)
		shard := s.index.shard(hash)
		shard.own(s.indexEpoch.Load())
		shard.insert(hash, slot, s.hashOf)
		s.namespaces[number].objects.add(slot)
		s.live++
	}
	scratch.record = appendHeader(scratch.record[:0], o, number, f, &p)
	scratch.record = append(scratch.record, p.bytes...)
	record := string(scratch.record)
	s.setRecord(slot, record)
	current = s.open(record, s.pool)
	s.changed(slot)
	s.account(&current, 1)
	s.marks.put(slot)
	return current, s.train(), true
}

// Delete deletes the object with the key, and returns its state.
func (s *Store) Delete(key kube.Key) (old Ref, found bool) {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	position, slot, found := s.find(hash, key)
	if !found {
		return Ref{}, false
	}
	old = s.open(s.record(slot), s.pool)
	s.removeTerms(slot, &old, true, true)
	shard := s.index.shard(hash)
	shard.own(s.indexEpoch.Load())
	shard.remove(position, s.hashOf)
	s.leave(old.header.namespace, slot)
	s.setRecord(slot, "")
	s.free = append(s.free, slot)
	s.live--
	s.changed(slot)
	s.account(&old, -1)
	return old, true
}

// Get returns the state with the key.
func (s *Store) Get(key kube.Key) (Ref, bool) {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.RLock()
	defer s.mu.RUnlock()
	at := s.placeOf(hash, key)
	return at.kept, at.kept.Exists()
}

// Has reports whether the store has an object with the key.
func (s *Store) Has(key kube.Key) bool {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, _, found := s.find(hash, key)
	return found
}

// find returns the slot of a key, and its position in the index. mu must be held.
func (s *Store) find(hash uint64, key kube.Key) (position int, slot uint32, found bool) {
	shard := s.index.shard(hash)
	if position, found = shard.find(&s.view, hash, key); found {
		slot = shard.slots[position] - 1
	}
	return position, slot, found
}

// Len returns the number of objects.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live
}

// Keys iterates over the keys at the start of the iteration, in no particular order. No lock is held: the loop may put
// and delete, which does not affect the iteration.
func (s *Store) Keys() iter.Seq[kube.Key] {
	return func(yield func(kube.Key) bool) {
		for r := range s.RefsIn(0, 1) {
			if !yield(r.Key()) {
				return
			}
		}
	}
}

// RefsIn iterates over the states in one of several parts of the store, from 0 to parts-1, at the start of the
// iteration. The loop may put and delete. An object stays in its part as long as it is in the store. Iterating over the
// parts one after the other, at any times, visits every object exactly once that is in the store all the time.
func (s *Store) RefsIn(part, parts int) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		v := s.shared()
		for slot := part; slot < int(v.slots); slot += max(parts, 1) {
			if r, ok := v.ref(uint32(slot), s.pool); ok && !yield(r) {
				return
			}
		}
	}
}

// shared returns a view that does not change.
func (s *Store) shared() view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.share()
}

// changed records a write to the slot.
func (s *Store) changed(slot uint32) {
	s.changes++
	s.terms.changed(slot)
}

package store

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
)

// Config is what a Store is made with. The zero Config is good.
type Config struct {
	// Indexes may be asked for by Query.Index. Their names must be distinct. Default: none.
	Indexes []Index
}

// Index finds objects by values that a function derives from them.
type Index struct {
	// Name is what queries call it. Required.
	Name string
	// Values returns the values under which the object is found; none is fine. It is
	// called once for each object that is put, by the goroutine that puts it, outside of
	// the store's lock. It must not change or keep the object, and must depend on nothing
	// else. Required.
	Values func(*wire.Object) ([]string, error)
}

// Query says which objects are meant: those for which all conditions hold that are given.
// The zero Query means all objects.
type Query struct {
	// Namespace, when it is not empty, is the objects' namespace.
	Namespace string
	// Labels, when it is not nil, matches the objects' labels. The keys of requirements
	// for equality (=, ==, in) are indexed when they are first asked for, see the
	// package's documentation.
	Labels labels.Selector
	// OwnerUID, when it is not empty, is the UID of one of the objects' owners.
	OwnerUID types.UID
	// Index, when it is not empty, is the name of an index of the Config, and Value is
	// one of the values that it has for the objects.
	Index, Value string
}

// Store keeps the latest known state of objects by key, see the package's documentation.
// It is safe for concurrent use.
//
// It knows nothing of order: whoever puts and deletes decides what is newer.
type Store struct {
	// Immutable after New.
	indexes []Index
	hashes  hashes
	hashOf  func(slot uint32) uint64 // of the key in the slot; with mu held
	pool    *pool

	building sync.Mutex // held while an index of labels is built; taken before mu

	mu sync.RWMutex
	// Guarded by mu.
	table
	terms    terms
	training training
	marks    marks
	changes  uint64 // counts Puts and Deletes
	raw      int64  // bytes of all objects, not compressed
	kept     int64  // bytes of all records as they were allocated
}

// New returns an empty store. It panics when an index has no name or no function, or a
// name occurs twice: the set of indexes is part of the program.
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
		indexes:  slices.Clone(config.Indexes),
		hashes:   h,
		pool:     &pool{},
		terms:    newTerms(),
		training: training{random: rand.New(rand.NewPCG(seed, seed))},
	}
	s.numbers = map[string]uint32{}
	s.hashOf = func(slot uint32) uint64 {
		number, name := parseKey(s.record(slot))
		return s.hashes.key(s.namespaces[number].name, name)
	}
	return s
}

// Put keeps a copy of o, in place of what was kept under its key; o and its Bytes are the
// caller's again afterwards. It returns what was replaced.
//
// The error is that of the indexes' functions, which it names, and which can be found in
// it with errors.Is and errors.As. The object is kept nevertheless; those indexes do not
// find it.
func (s *Store) Put(o *wire.Object) (old Ref, replaced bool, err error) {
	old, replaced, _, err = s.PutIf(o, func(Ref, bool) bool { return true })
	return old, replaced, err
}

// PutIf is Put if accept says so, which is called with what is kept under o's key, without a
// lock. When it does not, put is false, and nothing has changed. Whoever relies on what accept
// has seen must be the only one who puts and deletes meanwhile.
func (s *Store) PutIf(o *wire.Object, accept func(kept Ref, found bool) bool) (old Ref, replaced, put bool, err error) {
	hash := s.hashes.key(o.Key.Namespace, o.Key.Name)
	// Most of the work is done outside of the lock, by what is so now.
	s.mu.RLock()
	dictionary := s.training.current
	at := s.placeOf(hash, o.Key)
	before := Ref{}
	if at.found {
		before, _ = s.ref(at.slot, s.pool)
	}
	s.mu.RUnlock()
	if !accept(before, at.found) {
		return Ref{}, false, false, nil
	}
	f, err := s.facts(o)
	if !at.found || before.state() != f.state {
		s.readFacts(o, &f)
	}
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	p := scratch.pack(o, dictionary)

	old, replaced, trial := s.enter(o, hash, at, &f, p, scratch)
	if trial != nil {
		trial()
	}
	return old, replaced, true, err
}

// place is where a key was found, or is to be put, as long as nothing else was put or deleted.
type place struct {
	in      int    // the shard of its hash
	slot    uint32 // when it was found
	found   bool
	changes uint64 // what Store.changes was then
}

// placeOf needs mu.
func (s *Store) placeOf(hash uint64, key kube.Key) place {
	shard := s.index.shard(hash)
	at := place{changes: s.changes}
	if at.in, at.found = shard.find(&s.view, hash, key); at.found {
		at.slot = shard.slots[at.in] - 1
	}
	return at
}

// enter is the part of Put for which mu is held. The payload was packed by the dictionary
// that was current before, and at is where the key was then.
func (s *Store) enter(o *wire.Object, hash uint64, at place, f *facts, p payload, scratch *scratch) (old Ref, replaced bool, trial func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.packedFor != s.training.current {
		p = scratch.pack(o, s.training.current)
	}
	if at.changes != s.changes {
		at = s.placeOf(hash, o.Key)
	}
	number := s.number(o.Key.Namespace)
	shard := s.index.shard(hash)
	slot, replaced := at.slot, at.found
	if replaced {
		old, _ = s.ref(slot, s.pool)
		s.reindex(slot, old, o, f)
		s.account(old.record, -1)
	} else {
		slot = s.newSlot()
		s.readFacts(o, f)
		s.terms.addValues(slot, f)
		s.terms.addOwn(slot, f, &s.hashes)
	}
	scratch.record = appendHeader(scratch.record[:0], o, number, f, &p)
	scratch.record = append(scratch.record, p.bytes...)
	record := string(scratch.record)
	s.setRecord(slot, record)
	if !replaced {
		shard.own(s.indexEpoch.Load())
		shard.insert(hash, slot, s.hashOf)
		s.namespaces[number].objects.add(slot)
		s.live++
	}
	s.changed(slot)
	s.account(record, 1)
	s.marks.put(slot)
	return old, replaced, s.train()
}

// Delete forgets the object under key, and returns what was kept.
func (s *Store) Delete(key kube.Key) (old Ref, found bool) {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	shard := s.index.shard(hash)
	place, found := shard.find(&s.view, hash, key)
	if !found {
		return Ref{}, false
	}
	slot := shard.slots[place] - 1
	old, _ = s.ref(slot, s.pool)
	number, _ := parseKey(old.record)
	s.removeTerms(slot, old, true, true)
	shard.own(s.indexEpoch.Load())
	shard.remove(place, s.hashOf)
	s.leave(number, slot)
	s.setRecord(slot, "")
	s.free = append(s.free, slot)
	s.live--
	s.changed(slot)
	s.account(old.record, -1)
	return old, true
}

// Get returns what is kept under key.
func (s *Store) Get(key kube.Key) (Ref, bool) {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lookup(hash, key)
}

// lookup needs mu.
func (s *Store) lookup(hash uint64, key kube.Key) (Ref, bool) {
	shard := s.index.shard(hash)
	place, found := shard.find(&s.view, hash, key)
	if !found {
		return Ref{}, false
	}
	return s.ref(shard.slots[place]-1, s.pool)
}

// Len is the number of objects.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live
}

// Keys iterates over the keys as they are when the iteration begins, in no order. No lock
// is held meanwhile: the loop may put and delete, which does not show.
func (s *Store) Keys() iter.Seq[kube.Key] { return s.KeysIn(0, 1) }

// KeysIn iterates over the keys of one of several parts of the store, from 0 to parts-1,
// as Keys does over all. An object stays in its part as long as it is in the store. So
// whoever walks over the parts one after the other, at whatever times, meets each object
// exactly once that was there all the time.
func (s *Store) KeysIn(part, parts int) iter.Seq[kube.Key] {
	return func(yield func(kube.Key) bool) {
		for r := range s.RefsIn(part, parts) {
			if !yield(r.Key()) {
				return
			}
		}
	}
}

// RefsIn is KeysIn with the states that are kept when the iteration begins.
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

// shared returns a view that stays as it is.
func (s *Store) shared() view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.share()
}

// changed notes a write to the slot.
func (s *Store) changed(slot uint32) {
	s.changes++
	s.terms.changed(slot)
}

package store

import (
	"iter"

	"github.com/evenkeel-go/evenkeel/kube"
)

// marks note which objects a list has that comes in as a stream. They are guarded by the
// store's mu.
type marks struct {
	open bool
	bits []uint64 // by slot; a Put into an empty slot marks it, so what it was before does not matter
}

// put notes that the object in the slot was put.
func (m *marks) put(slot uint32) {
	if !m.open {
		return
	}
	for int(slot/64) >= len(m.bits) {
		m.bits = append(m.bits, 0)
	}
	m.bits[slot/64] |= 1 << (slot % 64)
}

func (m *marks) has(slot uint32) bool {
	return int(slot/64) < len(m.bits) && m.bits[slot/64]&(1<<(slot%64)) != 0
}

// BeginList begins a list and forgets all marks. From now on Put marks what it keeps,
// until EndList. A list that is begun again simply starts anew.
func (s *Store) BeginList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = marks{open: true}
}

// Mark notes that the list has the object under key, which need not be put, say because
// the store has the Same state. It returns whether the object is in the store; without it,
// or without a list, nothing is noted.
func (s *Store) Mark(key kube.Key) bool {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	shard := s.index.shard(hash)
	place, found := shard.find(&s.view, hash, key)
	if found {
		s.marks.put(shard.slots[place] - 1)
	}
	return found
}

// Unmarked iterates over the keys of the objects that the list did not have so far, as
// they are when the iteration begins: after the whole list, of those that are gone. The
// loop may delete them. There are none when no list has begun.
func (s *Store) Unmarked() iter.Seq[kube.Key] {
	return func(yield func(kube.Key) bool) {
		s.mu.RLock()
		if !s.marks.open {
			s.mu.RUnlock()
			return
		}
		var gone []Ref
		for slot := range s.records() {
			if !s.marks.has(slot) {
				r, _ := s.ref(slot, s.pool)
				gone = append(gone, r)
			}
		}
		s.mu.RUnlock()
		for _, r := range gone {
			if !yield(r.Key()) {
				return
			}
		}
	}
}

// EndList ends the list: marks are forgotten, and Put marks no longer.
func (s *Store) EndList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = marks{}
}

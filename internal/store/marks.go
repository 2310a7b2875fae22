package store

import (
	"iter"

	"github.com/evenkeel-go/evenkeel/kube"
)

// marks records which objects a streamed list contains. It is guarded by the store's mu.
type marks struct {
	open bool
	bits []uint64 // by slot; a Put into an empty slot marks it, so a stale bit has no effect
}

// put records that the object in the slot was put.
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

// BeginList begins a list and clears all marks. From now on Put marks its object, until EndList. It may be called again
// to start over.
func (s *Store) BeginList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = marks{open: true}
}

// Mark records that the list contains the object with the key, if it need not be put, for example because the store has
// the Same state. It returns whether the object is in the store. Otherwise, or without a list, nothing is recorded.
func (s *Store) Mark(key kube.Key) bool {
	hash := s.hashes.key(key.Namespace, key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, slot, found := s.find(hash, key)
	if found {
		s.marks.put(slot)
	}
	return found
}

// Unmarked iterates over the keys of the objects that the list did not contain so far, at the start of the iteration.
// After a complete list these are the deleted objects. The loop may delete them. Without a list it yields nothing.
func (s *Store) Unmarked() iter.Seq[kube.Key] {
	return func(yield func(kube.Key) bool) {
		s.mu.RLock()
		if !s.marks.open {
			s.mu.RUnlock()
			return
		}
		v := s.share()
		var gone []uint32
		for slot := range v.records() {
			if !s.marks.has(slot) {
				gone = append(gone, slot)
			}
		}
		s.mu.RUnlock()
		for _, slot := range gone {
			if r, _ := v.ref(slot, s.pool); !yield(r.Key()) {
				return
			}
		}
	}
}

// EndList ends the list: it clears the marks, and Put stops marking.
func (s *Store) EndList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = marks{}
}

package store

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// indexSet are the user's indexes of a store at one time. It is immutable.
type indexSet struct {
	all []Index
	// complete is the number of indexes that have all objects. Queries must not use the ones after them.
	complete int
}

// addBatch is the number of slots that AddIndex changes while it holds the lock.
const addBatch = 64

// AddIndex adds an index, and returns when it has all objects. Reads and writes continue meanwhile. Until AddIndex
// returns, queries with the index return an error, and so do those of snapshots that were taken before.
//
// The index does not find objects for which its function returns an error: failed is their number, and first is the
// error of one of them. The error err means that another index has the name.
func (s *Store) AddIndex(index Index) (failed int, first, err error) {
	s.adding.Lock()
	defer s.adding.Unlock()
	v, number, err := s.beginIndex(index)
	if err != nil {
		return 0, nil, err
	}
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	for from := uint32(0); from < v.slots; from += addBatch {
		values := make(map[uint32][]uint64, addBatch)
		for slot := from; slot < min(from+addBatch, v.slots); slot++ {
			r, ok := v.ref(slot, s.pool)
			if !ok {
				continue
			}
			var o wire.Object
			if err = r.read(&o, scratch); err == nil {
				values[slot], err = s.valuesOf(number, &index, &o)
			} else {
				s.indexFailed(index.Name)
			}
			if err != nil {
				failed, first = failed+1, err
			}
		}
		s.addValues(values, scratch)
	}
	s.endIndex()
	return failed, first, nil
}

// beginIndex makes writers call the index's function, and returns the state before that.
func (s *Store) beginIndex(index Index) (v view, number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.indexes.Load()
	if slices.ContainsFunc(old.all, func(other Index) bool { return other.Name == index.Name }) {
		return v, 0, fmt.Errorf("add index %q: another has the same name", index.Name)
	}
	s.indexes.Store(&indexSet{all: append(slices.Clip(old.all), index), complete: old.complete})
	s.terms.written = map[uint32]struct{}{}
	return s.share(), len(old.all), nil
}

// addValues adds values to the records of slots that were not written since beginIndex.
func (s *Store) addValues(of map[uint32][]uint64, scratch *scratch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot, values := range of {
		if _, written := s.terms.written[slot]; written || len(values) == 0 {
			continue
		}
		record := s.record(slot) // not that of the view, which may have been encoded again
		h := parse(record)
		scratch.record = appendWithValues(scratch.record[:0], record, &h, values)
		s.rewrite(slot, record, string(scratch.record))
		for _, value := range values {
			s.terms.values.add(value, slot)
		}
	}
	s.changes++ // a concurrent Put must remove the values of the new record
}

// endIndex lets queries use the index.
func (s *Store) endIndex() {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.indexes.Load().all
	s.indexes.Store(&indexSet{all: all, complete: len(all)})
	s.terms.written = nil
}

// appendWithValues appends a record with additional values.
func appendWithValues(dst []byte, record string, h *header, more []uint64) []byte {
	for i := range h.valueCount() {
		more = append(more, h.value(i))
	}
	slices.Sort(more)
	more = slices.Compact(more)
	var buffer [binary.MaxVarintLen64]byte
	size := func(n int) int { return binary.PutUvarint(buffer[:], uint64(n)) }
	after := len(h.payload) + len(h.splices) + size(len(h.splices))
	before := len(record) - after - len(h.values) - size(h.valueCount())
	dst = appendValues(append(dst, record[:before]...), more)
	return append(dst, record[len(record)-after:]...)
}

package store

import "math/bits"

// Sizes says what a store costs.
type Sizes struct {
	// Objects is their number.
	Objects int
	// Raw is the size of the objects' bytes, not compressed.
	Raw int64
	// Bytes is what the store occupies: records (with what the allocator adds to them),
	// tables, indexes and dictionaries, but neither the buffers that come and go with
	// reads nor what only a Snapshot or a Ref still keeps. It is an estimate, see
	// the package's tests for how good it is.
	Bytes int64
	// Dictionary is the part of Bytes that is for dictionaries and the encoder's tables.
	Dictionary int64
	// Generation is how many dictionaries there have been.
	Generation int
}

// Sizes says what the store costs now. It walks over the indexes, so it is meant for
// metrics and tests, not for every event.
func (s *Store) Sizes() Sizes {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sizes := Sizes{Objects: s.live, Raw: s.raw, Generation: s.training.generation}
	for _, d := range s.dictionaries {
		if d != nil {
			sizes.Dictionary += int64(d.size) + encoderTables
		}
	}
	sizes.Bytes = sizes.Dictionary + s.kept + s.tableBytes() + s.terms.bytes() + int64(cap(s.marks.bits))*8
	return sizes
}

func (t *table) tableBytes() int64 {
	size := int64(len(t.chunks))*int64(allocated(chunkSize*16+8)) + int64(cap(t.chunks))*8 + int64(cap(t.free))*4
	for i := range t.index.shards {
		size += int64(cap(t.index.shards[i].slots))*4 + 40
	}
	size += int64(cap(t.namespaces))*8 + mapBytes(len(t.numbers), 24)
	for _, n := range t.namespaces {
		size += 56 + int64(allocated(len(n.name))) + n.objects.bytes()
	}
	return size
}

func (t *terms) bytes() int64 {
	size := t.owners.bytes() + t.values.bytes()
	for _, index := range t.labels {
		size += index.bytes()
	}
	return size
}

// account adds a record to the sums, or takes it away.
func (s *Store) account(record string, sign int64) {
	h := parse(record)
	s.raw += sign * int64(h.rawSize())
	s.kept += sign * int64(allocated(len(record)))
}

// allocated estimates what the allocator takes for n bytes: its sizes are 16 bytes apart
// first, and then about eight to each doubling.
func allocated(n int) int {
	step := 16
	if n > 256 {
		step = 1 << (bits.Len(uint(n-1)) - 4)
	}
	return (n + step - 1) / step * step
}

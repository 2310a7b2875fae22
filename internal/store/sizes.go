package store

import "math/bits"

// Sizes are the sizes of a store.
type Sizes struct {
	// Objects is the number of objects.
	Objects int
	// Raw is the size of the objects' bytes, uncompressed.
	Raw int64
	// Bytes is the memory of the store: records (including the allocator's overhead), tables, indexes and dictionaries,
	// without the temporary buffers of reads, and without data that only a Snapshot or a Ref keeps. It is an estimate;
	// the package's tests check its accuracy.
	Bytes int64
	// Dictionary is the part of Bytes for dictionaries and the encoder's tables.
	Dictionary int64
	// Generation is the number of dictionaries so far.
	Generation int
}

// Sizes returns the current sizes. It iterates over the indexes, so it is meant for metrics and tests, not for every
// event.
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

// account adds a record to the sums, or subtracts it.
func (s *Store) account(r *Ref, sign int64) {
	s.raw += sign * int64(r.header.rawSize())
	s.kept += sign * int64(allocated(len(r.record)))
}

// allocated estimates the memory that the allocator uses for n bytes: its size classes are 16 bytes apart at first,
// then about eight for each doubling.
func allocated(n int) int {
	step := 16
	if n > 256 {
		step = 1 << (bits.Len(uint(n-1)) - 4)
	}
	return (n + step - 1) / step * step
}

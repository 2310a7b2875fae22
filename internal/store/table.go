package store

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"
)

// chunkSize is the number of slots that are copied at the first write after a snapshot, and the number of slots in the
// smallest store.
const chunkSize = 256

// chunk is a group of slots. A slot is empty or has the record of one object, which stays in it as long as the object
// is in the store.
type chunk struct {
	records [chunkSize]string
	epoch   uint64 // see table.epoch
}

// view has the data for reading records by slot. In a store it is guarded by mu. A copy never changes, because shared
// chunks are copied before a write.
type view struct {
	chunks       []*chunk
	slots        uint32 // number of slots that were ever used
	namespaces   []*namespace
	dictionaries dictionaries
	live         int // number of objects
}

// namespace is a namespace that has or had objects. Its name is immutable.
type namespace struct {
	name    string
	objects posting // guarded by mu
}

func (v *view) record(slot uint32) string {
	return v.chunks[slot/chunkSize].records[slot%chunkSize]
}

// ref returns the state in the slot. ok is false for an empty slot.
func (v *view) ref(slot uint32, p *pool) (r Ref, ok bool) {
	if slot >= v.slots {
		return Ref{}, false
	}
	record := v.record(slot)
	if record == "" {
		return Ref{}, false
	}
	return v.open(record, p), true
}

// open parses a record.
func (v *view) open(record string, p *pool) Ref {
	h := parse(record)
	kept := Kept{record: record, namespace: v.namespaces[h.namespace], dictionary: v.dictionaries.of(h.flags), pool: p}
	return Ref{Kept: kept, header: h}
}

// records iterates over the slots that are not empty.
func (v *view) records() iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		for slot := range v.slots {
			if record := v.record(slot); record != "" && !yield(slot, record) {
				return
			}
		}
	}
}

// table has the slots, and the data to find an object's slot.
type table struct {
	view
	free  []uint32 // empty slots below view.slots
	index keyIndex

	numbers        map[string]uint32 // namespace numbers by name
	freeNamespaces []uint32

	// epoch counts the views that were handed out. A chunk with an older epoch may be shared with a view. It is also
	// increased with only mu's read lock held.
	epoch atomic.Uint64
	// indexEpoch is the same for the shards of index, which only snapshots share.
	indexEpoch atomic.Uint64
}

// share returns a view that does not change.
func (t *table) share() view {
	t.epoch.Add(1)
	v := t.view
	v.chunks = slices.Clone(v.chunks)
	// namespaces is appended to or copied, but never changed in the part that a view reads.
	return v
}

func (t *table) setRecord(slot uint32, record string) {
	c := t.chunks[slot/chunkSize]
	if epoch := t.epoch.Load(); c.epoch != epoch {
		c = &chunk{records: c.records, epoch: epoch}
		t.chunks[slot/chunkSize] = c
	}
	c.records[slot%chunkSize] = record
}

// newSlot returns an empty slot.
func (t *table) newSlot() uint32 {
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return slot
	}
	if int(t.slots) == len(t.chunks)*chunkSize {
		t.chunks = append(t.chunks, &chunk{epoch: t.epoch.Load()})
	}
	t.slots++
	return t.slots - 1
}

// number returns the number of a namespace, and assigns one if necessary.
func (t *table) number(name string) uint32 {
	if number, found := t.numbers[name]; found {
		return number
	}
	var number uint32
	entry := &namespace{name: strings.Clone(name)}
	if n := len(t.freeNamespaces); n > 0 {
		number = t.freeNamespaces[n-1]
		t.freeNamespaces = t.freeNamespaces[:n-1]
		t.namespaces = slices.Clone(t.namespaces) // views may still read this entry
		t.namespaces[number] = entry
	} else {
		number = uint32(len(t.namespaces))
		t.namespaces = append(t.namespaces, entry)
	}
	t.numbers[entry.name] = number
	return number
}

// leave removes the slot from its namespace, and frees a namespace without objects.
func (t *table) leave(number, slot uint32) {
	entry := t.namespaces[number]
	entry.objects.remove(slot)
	if entry.objects.n == 0 {
		delete(t.numbers, entry.name)
		t.freeNamespaces = append(t.freeNamespaces, number)
	}
}

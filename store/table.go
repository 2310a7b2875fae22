package store

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"
)

// chunkSize is the number of slots that are copied when a snapshot and a write meet, and
// of those that the smallest store has.
const chunkSize = 256

// chunk is some slots. A slot is empty or has the record of one object, which stays in
// it as long as the object is in the store.
type chunk struct {
	records [chunkSize]string
	epoch   uint64 // see table.epoch
}

// view is what is needed for reading records by slot. In a store it is guarded by mu; a
// copy stays as it is, because shared chunks are copied before they are written to.
type view struct {
	chunks       []*chunk
	slots        uint32 // slots from 0 that were ever in use
	namespaces   []*namespace
	dictionaries dictionaries
	live         int // objects
}

// namespace is a namespace that has, or had, objects. Its name is immutable.
type namespace struct {
	name    string
	objects posting // guarded by mu
}

func (v *view) record(slot uint32) string {
	return v.chunks[slot/chunkSize].records[slot%chunkSize]
}

// ref returns what is in the slot; ok is false when that is nothing.
func (v *view) ref(slot uint32, p *pool) (r Ref, ok bool) {
	if slot >= v.slots {
		return Ref{}, false
	}
	record := v.record(slot)
	if record == "" {
		return Ref{}, false
	}
	number, _ := parseKey(record)
	return Ref{record: record, namespace: v.namespaces[number], dictionary: v.dictionaries.of(record[0]), pool: p}, true
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

// table is the slots, with what finds an object's slot.
type table struct {
	view
	free  []uint32 // slots below view.slots that are empty
	index keyIndex

	numbers        map[string]uint32 // of the namespaces
	freeNamespaces []uint32

	// epoch counts the views that were handed out. What has an older epoch may be shared
	// with one of them. It is raised under mu's read lock too.
	epoch atomic.Uint64
	// indexEpoch is the same for the shards of index, which only snapshots share.
	indexEpoch atomic.Uint64
}

// share returns a view that stays as it is.
func (t *table) share() view {
	t.epoch.Add(1)
	v := t.view
	v.chunks = slices.Clone(v.chunks)
	// namespaces is appended to, or copied, but never written to where it is read.
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

// number returns the number of a namespace, which it gets if it has none.
func (t *table) number(name string) uint32 {
	if number, found := t.numbers[name]; found {
		return number
	}
	var number uint32
	entry := &namespace{name: strings.Clone(name)}
	if n := len(t.freeNamespaces); n > 0 {
		number = t.freeNamespaces[n-1]
		t.freeNamespaces = t.freeNamespaces[:n-1]
		t.namespaces = slices.Clone(t.namespaces) // views may still look this number up
		t.namespaces[number] = entry
	} else {
		number = uint32(len(t.namespaces))
		t.namespaces = append(t.namespaces, entry)
	}
	t.numbers[entry.name] = number
	return number
}

// leave takes the slot out of its namespace, and gives up a namespace that is empty.
func (t *table) leave(number, slot uint32) {
	entry := t.namespaces[number]
	entry.objects.remove(slot)
	if entry.objects.n == 0 {
		delete(t.numbers, entry.name)
		t.freeNamespaces = append(t.freeNamespaces, number)
	}
}

package workqueue

import (
	"maps"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/shrink"
)

// item is a key in the queue.
type item[K comparable, C any] struct {
	key   K
	group *group[K, C]
	// next is the next run. It is not valid while the state is processing.
	next run[C]
	// current is the run that the worker has taken.
	current taken[C]

	// at and sequence order the waiting or the ready items. The sequence keeps keys with equal times in the order in
	// which they got that time.
	at       time.Duration
	sequence uint64
	index    int // in the heap, if it is in one

	// readySince is the time when the item became ready.
	readySince time.Duration
	state      state
	exempt     bool // taken, but not counted for the limit of its group
	released   bool // Release was called while it was processing
	// endsWithDrain belongs to the last Hold.
	endsWithDrain bool
	links         [lists]link[K, C]
}

// enter creates an item for a new key.
func (q *Queue[K, C]) enter(key K) *item[K, C] {
	name := q.groupOf(key)
	g := q.groups[name]
	if g == nil {
		g, q.spare = q.spare, nil
		if g == nil {
			g = new(group[K, C])
		}
		g.name = name
		q.groups[name] = g
	}
	g.items++
	var entry *item[K, C]
	if last := len(q.free) - 1; last >= 0 {
		entry, q.free = q.free[last], q.free[:last]
	} else {
		entry = new(item[K, C])
	}
	entry.key, entry.group = key, g
	q.items[key] = entry
	q.count[nowhere]++
	q.maxKeys = max(q.maxKeys, len(q.items))
	return entry
}

// freeItems is the maximum number of unused items that are kept.
const freeItems = 256

// forget removes an item that is in no state.
func (q *Queue[K, C]) forget(entry *item[K, C]) {
	q.count[entry.state]--
	delete(q.items, entry.key)
	if g := entry.group; g.items > 1 {
		g.items--
	} else {
		delete(q.groups, g.name)
		*g = group[K, C]{}
		q.spare = g
	}
	*entry = item[K, C]{}
	if len(q.free) < freeItems {
		q.free = append(q.free, entry)
	}
	if shrink.Due(q.maxKeys, len(q.items)) {
		q.shrink()
	}
}

// shrink frees the memory that the queue needed when it was larger. Its time depends on the remaining keys, which are
// few compared with those that were removed since the last call.
func (q *Queue[K, C]) shrink() {
	items := make(map[K]*item[K, C], len(q.items))
	maps.Copy(items, q.items)
	groups := make(map[string]*group[K, C], len(q.groups))
	maps.Copy(groups, q.groups)
	q.items, q.groups, q.maxKeys = items, groups, len(items)
	q.waiting, q.free = slices.Clone(q.waiting), nil
	for _, g := range groups {
		g.shrink()
	}
}

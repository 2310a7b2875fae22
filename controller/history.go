package controller

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Limits of a controller's history. A record takes about 0.75 KB, and each further cause and write some 200 B. The
// total is usually at most 2 MB, and does not depend on the number of objects.
const (
	// recentRuns is the number of runs that are kept per controller. keyRuns is the number of runs that are kept per
	// key, for the recentKeys keys that ran last.
	recentRuns = 256
	keyRuns    = 4
	recentKeys = 256
	// recentSkips is the number of skipped enqueues that are kept.
	recentSkips = 256
	// keptStates is the size in bytes of the objects' states that the causes of ended runs and skips keep until a
	// person looks at them. Older causes do not show anymore which parts of an object changed.
	keptStates = 1 << 20
)

// skip is a change or a trigger that did not add its key to the queue.
type skip struct {
	Time  time.Time
	Key   kube.Key
	Why   SkipReason
	Cause Cause
}

// SkipReason is the reason why a change did not cause a run. The set is small and fixed.
type SkipReason string

// The reasons.
const (
	// SkipPredicate: Config.Predicate dropped the change.
	SkipPredicate SkipReason = "predicate"
	// SkipOwnWrite: the change shows exactly what the key's last run wrote.
	SkipOwnWrite SkipReason = "own-write"
	// SkipTerminal: the key's last run failed with Terminal, and the change left the object's generation as it was.
	SkipTerminal SkipReason = "terminal"
)

// history contains the latest runs of a controller, and a few runs of each of the keys that ran last. It is kept
// across terms of leadership. It is an observer.
type history struct {
	ignore

	mu    sync.Mutex
	ids   uint64                     // guarded by mu; ID of the last run
	runs  ring[*record]              // guarded by mu
	keys  map[kube.Key]*list.Element // guarded by mu; the elements of order
	order list.List                  // guarded by mu; of *keyHistory; the key that ran last is first
	skips ring[skip]                 // guarded by mu

	differences []keptDifference // guarded by mu; of ended runs and skips, oldest first
	kept        int              // guarded by mu; the sum of their sizes
}

// keptDifference is a difference that keeps states, with their size.
type keptDifference struct {
	*causeDifference
	size int
}

// keyHistory is the history of one key.
type keyHistory struct {
	key  kube.Key
	runs ring[*record]
}

func newHistory() *history {
	return &history{
		runs: ring[*record]{limit: recentRuns}, skips: ring[skip]{limit: recentSkips},
		keys: map[kube.Key]*list.Element{},
	}
}

// began adds a run that starts, and sets its ID.
func (h *history) began(r *running) { h.add(r.record) }

// add is began for a record.
func (h *history) add(r *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	r.run.ID = h.ids // no lock is needed: the run is not shared yet
	h.runs.add(r)
	element := h.keys[r.run.Key]
	switch {
	case element != nil:
	case len(h.keys) < recentKeys:
		element = h.order.PushBack(&keyHistory{runs: ring[*record]{limit: keyRuns}})
	default: // evict the key that has not run for longest, and reuse its memory
		element = h.order.Back()
		delete(h.keys, historyOf(element).key)
		historyOf(element).runs.clear()
	}
	h.order.MoveToFront(element)
	h.keys[r.run.Key] = element
	historyOf(element).key = r.run.Key
	historyOf(element).runs.add(r)
}

// historyOf returns the value of an element of history.order.
func historyOf(element *list.Element) *keyHistory { return element.Value.(*keyHistory) }

func (h *history) skipped(key kube.Key, why SkipReason, cause *Cause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skips.add(skip{Time: cause.Time, Key: key, Why: why, Cause: *cause})
	h.keep(cause.difference)
}

func (h *history) ended(_ context.Context, r *running) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cause := range r.run.Causes.list.List() {
		h.keep(cause.difference)
	}
}

// keep counts the states of a difference that only the history needs, and drops those of older ones.
func (h *history) keep(d *causeDifference) {
	size := d.size()
	if size == 0 {
		return
	}
	h.differences, h.kept = append(h.differences, keptDifference{d, size}), h.kept+size
	for h.kept > keptStates && len(h.differences) > 1 {
		h.kept -= h.differences[0].size
		h.differences[0].drop()
		h.differences = h.differences[1:]
	}
}

// all returns the latest runs in reverse chronological order.
func (h *history) all() []RunRecord {
	h.mu.Lock()
	runs := h.runs.latestFirst()
	h.mu.Unlock()
	return snapshots(runs)
}

// of returns the latest runs and skips of key, both in reverse chronological order.
func (h *history) of(key kube.Key) (runs []RunRecord, skips []skip) {
	h.mu.Lock()
	var kept []*record
	if known := h.keys[key]; known != nil {
		kept = historyOf(known).runs.latestFirst()
	}
	skips = slices.DeleteFunc(h.skips.latestFirst(), func(s skip) bool { return s.Key != key })
	h.mu.Unlock()
	for i := range skips {
		skips[i].Cause = skips[i].Cause.compared()
	}
	return snapshots(kept), skips
}

func snapshots(all []*record) []RunRecord {
	runs := make([]RunRecord, len(all))
	for i, r := range all {
		runs[i] = r.snapshot()
	}
	return runs
}

// ring contains the last limit values that were added.
type ring[V any] struct {
	limit  int
	values []V
	next   int
}

func (r *ring[V]) add(v V) {
	if len(r.values) < r.limit {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % r.limit
}

// clear removes all values and keeps the memory for reuse.
func (r *ring[V]) clear() {
	clear(r.values)
	r.values, r.next = r.values[:0], 0
}

// latestFirst returns a copy of the values in reverse order of addition.
func (r *ring[V]) latestFirst() []V {
	all := slices.Concat(r.values[r.next:], r.values[:r.next])
	slices.Reverse(all)
	return all
}

package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// How much a controller remembers of what it did. A record takes about 0.75 KB, and some 200 B for
// each further cause and write: some 1 MB at the most in usual use, whatever the number of objects.
const (
	// recentRuns is how many runs are kept of a controller, keyRuns of one key, and recentKeys
	// of how many keys: those that ran last.
	recentRuns = 256
	keyRuns    = 4
	recentKeys = 256
	// recentSkips is how many enqueues are kept that did not lead to a run.
	recentSkips = 256
)

// Skip is a change or a trigger that did not put its key into the queue.
type Skip struct {
	Time  time.Time
	Key   kube.Key
	Why   SkipReason
	Cause Cause
}

// SkipReason says why a change did not make the handler run. The set is small and fixed.
type SkipReason string

// The reasons.
const (
	// SkipPredicate: Config.Predicate has dropped it.
	SkipPredicate SkipReason = "predicate"
	// SkipOwnWrite: it shows exactly what the key's last run has written.
	SkipOwnWrite SkipReason = "own-write"
	// SkipTerminal: the key has failed for good, and the change is none of the object's
	// generation.
	SkipTerminal SkipReason = "terminal"
)

// SkipReasons lists every SkipReason, for whoever wants to show zeros.
func SkipReasons() []SkipReason { return []SkipReason{SkipPredicate, SkipOwnWrite, SkipTerminal} }

// history is what a controller remembers of its runs: all of the latest, and a few of each of
// the keys that ran last. It survives terms of leadership.
type history struct {
	mu    sync.Mutex
	ids   uint64                   // guarded by mu; of the last run
	runs  ring[*record]            // guarded by mu
	keys  map[kube.Key]*keyHistory // guarded by mu
	first *keyHistory              // guarded by mu; of the key that ran last; its next is of the one before
	last  *keyHistory              // guarded by mu
	skips ring[Skip]               // guarded by mu
}

// keyHistory is the history of one key.
type keyHistory struct {
	key        kube.Key
	runs       ring[*record]
	prev, next *keyHistory
}

func newHistory() *history {
	return &history{
		runs: ring[*record]{limit: recentRuns}, skips: ring[Skip]{limit: recentSkips}, keys: map[kube.Key]*keyHistory{},
	}
}

// begin keeps a run that begins, and numbers it.
func (h *history) begin(r *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	r.run.ID = h.ids // nobody else knows the run yet
	h.runs.add(r)
	of := h.keys[r.run.Key]
	switch {
	case of != nil:
		h.unlink(of)
	case len(h.keys) < recentKeys:
		of = &keyHistory{key: r.run.Key, runs: ring[*record]{limit: keyRuns}}
		h.keys[of.key] = of
	default: // the key that has not run for longest makes room, and its memory is used again
		of = h.last
		h.unlink(of)
		delete(h.keys, of.key)
		of.key = r.run.Key
		of.runs.clear()
		h.keys[of.key] = of
	}
	h.putFirst(of)
	of.runs.add(r)
}

func (h *history) unlink(of *keyHistory) {
	if of.prev != nil {
		of.prev.next = of.next
	} else {
		h.first = of.next
	}
	if of.next != nil {
		of.next.prev = of.prev
	} else {
		h.last = of.prev
	}
}

func (h *history) putFirst(of *keyHistory) {
	of.prev, of.next = nil, h.first
	if h.first != nil {
		h.first.prev = of
	} else {
		h.last = of
	}
	h.first = of
}

func (h *history) skip(s Skip) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skips.add(s)
}

// all returns the latest runs, latest first.
func (h *history) all() []RunRecord {
	h.mu.Lock()
	runs := h.runs.latestFirst()
	h.mu.Unlock()
	return snapshots(runs)
}

// of returns the latest runs of key, latest first, and what was skipped of it.
func (h *history) of(key kube.Key) (runs []RunRecord, skips []Skip) {
	h.mu.Lock()
	var kept []*record
	if known := h.keys[key]; known != nil {
		kept = known.runs.latestFirst()
	}
	skips = slices.DeleteFunc(h.skips.latestFirst(), func(s Skip) bool { return s.Key != key })
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

// ring keeps the last limit values that were added.
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

// clear forgets what is kept, but not the memory for it.
func (r *ring[V]) clear() {
	clear(r.values)
	r.values, r.next = r.values[:0], 0
}

// latestFirst returns a copy of what is kept.
func (r *ring[V]) latestFirst() []V {
	all := slices.Concat(r.values[r.next:], r.values[:r.next])
	slices.Reverse(all)
	return all
}

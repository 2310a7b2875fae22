package workqueue

import (
	"slices"
	"time"
)

// Hold is how long a key waits that a worker has returned unprocessed. The zero Hold does not wait.
type Hold struct {
	AtMost time.Duration
	// EndsWithDrain is true if Drain does not wait for the key: it removes the key, or the key is done if Drain was
	// called before.
	EndsWithDrain bool
}

// Hold returns a key unprocessed. A worker calls it instead of Done, directly after Get, if it cannot process the key
// yet. The key becomes ready after h.AtMost, or at Release, with the causes and the priority that it was taken with,
// and its Wait continues. Adds are merged and do not make it ready earlier, not even with EndBackoff. After ShutDown
// Hold does the same as Done. It does nothing for a key that is not processing.
func (q *Queue[K, C]) Hold(key K, h Hold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if !entry.isProcessing() {
		return
	}
	if q.phase == open || q.phase == draining && !h.EndsWithDrain {
		if entry.released {
			h.AtMost = 0
		}
		entry.endsWithDrain = h.EndsWithDrain
		added := entry.next
		entry.next = run[C]{taken: entry.current}
		now := q.now()
		entry.next.hold(after(now, h.AtMost))
		entry.next.heldFrom = max(now, 1)
		if entry.state == processingAgain {
			entry.next.unite(&added, q.merge)
		}
		q.move(entry, processingAgain)
	}
	q.giveBack(entry)
}

// Release makes a held key ready. If the key is processing, a following Hold does not wait, so that a Release between
// the decision to hold a key and Hold is not lost. Release does nothing for other keys.
func (q *Queue[K, C]) Release(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	switch {
	case entry.isProcessing():
		entry.released = true
	case entry != nil && entry.state == inHold:
		entry.next.due = q.now()
		q.file(entry, entry.next.due)
	}
}

// Exempt stops counting a key that is processing for the limit of its group, until it is returned. It is for a worker
// that does not return and was replaced by another one. It does nothing for a key that is not processing.
func (q *Queue[K, C]) Exempt(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if !entry.isProcessing() || entry.exempt {
		return
	}
	entry.exempt = true
	if q.ready.release(entry.group) {
		q.available.Signal()
	}
}

// RemoveCauses removes causes that were added while key was processing, and returns their number: those for which match
// returns true, such as the key's own writes. match should return false for merged causes if it sees only one of them.
// All causes stay if some were dropped, and if an Add for a later time was superseded by them, because otherwise no run
// would remain. If no cause is left, the key is not added. Otherwise its due time and priority stay.
//
// match must be fast and must not call the queue. RemoveCauses removes nothing from a key that is not processing.
func (q *Queue[K, C]) RemoveCauses(key K, match func(C) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil || entry.state != processingAgain || entry.next.causes.dropped > 0 || entry.next.decides {
		return 0
	}
	causes := &entry.next.causes
	before := len(causes.list)
	causes.list = slices.DeleteFunc(causes.list, match)
	if len(causes.list) == 0 {
		q.move(entry, processing)
		return before
	}
	return before - len(causes.list)
}

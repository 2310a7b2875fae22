package workqueue

import (
	"slices"
	"time"
)

// Hold returns a taken key unprocessed. A worker calls it instead of Done, directly after Get, if it cannot process the
// key yet. The key becomes ready after atMost (0: now), or at Release, with the causes and the priority that it was
// taken with, and its Wait continues. Adds are merged and do not make it ready earlier, not even with Wake. After
// ShutDown Hold does the same as Done. It does nothing for a key that is not taken.
func (q *Queue[K]) Hold(key K, atMost time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil || !entry.taken() {
		return
	}
	if q.phase != down {
		meanwhile := entry.next
		entry.next = run{taken: entry.current}
		now := q.now()
		entry.next.hold(after(now, atMost))
		entry.next.heldFrom = max(now, 1)
		if entry.place == runningAgain {
			entry.next.unite(&meanwhile)
		}
		q.move(entry, runningAgain)
	}
	q.giveBack(entry)
}

// Release makes a held key ready. It does nothing for other keys: a caller that waits for an event which may occur
// before Hold must check it again after Hold.
func (q *Queue[K]) Release(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil || entry.place != inHold {
		return
	}
	now := q.now()
	entry.next.due = now
	q.file(entry, now)
}

// Exempt stops counting a taken key for the limit of its group, until it is returned. It is for a worker that does not
// return and was replaced by another one. It does nothing for a key that is not taken.
func (q *Queue[K]) Exempt(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil || !entry.taken() || entry.exempt {
		return
	}
	entry.exempt = true
	if q.ready.release(entry.group) {
		q.takable.Signal()
	}
}

// Forgive removes causes that were added while key is taken, and returns their number: those for which match returns
// true, such as the key's own writes. It only removes causes that are certain: a repeated cause (Cause.Count) stays,
// because it stands for more than match sees. All causes stay if some were dropped, and if an Add for a later time was
// superseded by them, because otherwise no run would remain. If no cause is left, the key is not added.
// Otherwise its due time and priority stay.
//
// match must be fast and must not call the queue. Forgive removes nothing from a key that is not taken.
func (q *Queue[K]) Forgive(key K, match func(Cause) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil || entry.place != runningAgain || entry.next.causes.dropped > 0 || entry.next.decides {
		return 0
	}
	causes := &entry.next.causes
	before := len(causes.list)
	causes.list = slices.DeleteFunc(causes.list, func(c Cause) bool { return c.Count <= 1 && match(c) })
	if len(causes.list) == 0 {
		q.move(entry, running)
		return before
	}
	return before - len(causes.list)
}

package workqueue

import (
	"slices"
	"time"
)

// Hold gives a taken key back as it was, in place of Done: for the worker that has just taken
// it and finds that it cannot work on it yet. The key is due after atMost (0: now), or at Release,
// with the causes and the priority that it was taken with and its Wait going on. Adds merge with
// it meanwhile; none makes it due earlier, not even with Wake. After Drain and ShutDown
// Hold is Done, and of a key that was not taken it does nothing.
func (q *Queue[K]) Hold(key K, atMost time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil || !it.taken() {
		return
	}
	if q.phase == open {
		meanwhile := it.next
		it.next = run{taken: it.current}
		now := q.now()
		it.next.hold(after(now, atMost))
		it.next.heldFrom = max(now, 1)
		if it.place == runningAgain {
			it.next.unite(&meanwhile)
		}
		q.move(it, runningAgain)
	}
	q.giveBack(it)
}

// Release makes a held key due now. Of other keys it does nothing: whoever calls it for
// something that may happen before Hold has to look again after Hold.
func (q *Queue[K]) Release(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil || it.place != inHold {
		return
	}
	now := q.now()
	it.next.due = now
	q.file(it, now)
}

// Forgive takes back causes for which a key was added while it is taken, and returns how many:
// those that match says are none, such as the key's own writes. Only what is known for certain
// is taken back: a cause that came more than once (Cause.Count) stands for more than what match
// sees and stays, and where causes were dropped all stay; so they do where an Add for later has
// given way to these, because nothing else would run the key then. When none is left, the key
// is not added any more; otherwise its due time and priority stay.
//
// match must be quick and must not call the queue. Of a key that is not taken Forgive takes
// nothing back.
func (q *Queue[K]) Forgive(key K, match func(Cause) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil || it.place != runningAgain || it.next.causes.dropped > 0 || it.next.decides {
		return 0
	}
	causes := &it.next.causes
	before := len(causes.list)
	causes.list = slices.DeleteFunc(causes.list, func(c Cause) bool { return c.Count <= 1 && match(c) })
	if len(causes.list) == 0 {
		q.move(it, running)
		return before
	}
	return before - len(causes.list)
}

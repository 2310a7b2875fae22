// Package workqueue is the queue between events of the cluster and the workers that process them: a deduplicating,
// delaying, prioritized and fair queue of keys that records why each key is in it.
//
// This file contains a key's path through the queue. schedule.go decides when a key becomes ready, and bands.go in
// which order ready keys are handed out.
package workqueue

import (
	"sync"
	"time"
)

// Queue gives each key to at most one worker at a time.
//
// Guarantees:
//   - A key is in the queue at most once. Adding it again merges the causes.
//   - A key that a worker has taken with Get is not handed out again before Done or Hold. If it was added in between,
//     it is handed out again after that.
//   - If a delayed key is added for another time, the earlier time wins. A key that was only added with After loses
//     that cause when it is added for an earlier time, because the earlier run decides when the next one is. It keeps
//     PriorityHigh. Causes with Delay are events, and stay. Keys in backoff and held keys wait until their end, and
//     keep all causes: see Options.Backoff and Hold.
//   - Of the ready keys, those with the highest priority go first, except for an overdue priority. Within a priority,
//     groups take turns, with one key per turn. Within a group, the key that has been ready for longest goes first. The
//     age of keys has no other effect: even if a group's keys are very old, a new key of another group with the same
//     priority waits only for its group's turn.
//   - Nothing starves: a priority is overdue when a ready key has had it for StarvationTimeout. From then on at least
//     one in four of the keys that are handed out has that priority, or one in eight if two priorities below the
//     highest are overdue. Groups take turns among these keys too: if G groups have such keys, the Nth key of a group
//     is one of the next N times G. With a GroupLimit, this holds while the group is below it.
//   - Get does not block while a key can be handed out.
//
// Every operation takes one lock and O(log n) time, except Snapshot, Drain and ShutDown, which visit all keys and take
// O(n). The zero value is not usable; use New.
type Queue[K comparable, C any] struct {
	// Immutable after New.
	groupOf func(K) string
	merge   Merge[C]
	began   time.Time

	mu sync.Mutex
	// available wakes workers. It is signaled once for each additional key that can be taken, and broadcast when Get
	// must return false.
	available *sync.Cond
	// The following fields are guarded by mu.

	// items contains every key that is delayed, ready or processing, and groups their groups.
	items  map[K]*item[K, C]
	groups map[string]*group[K, C]
	// waiting contains the delayed keys, ordered by their time.
	waiting byTime[K, C]
	// free contains unused items, and spare an unused group: most queues are short most of the time, and an Add then
	// allocates nothing but its cause.
	free  []*item[K, C]
	spare *group[K, C]
	// ready contains the ready keys.
	ready ready[K, C]
	// count is the number of keys by state.
	count [states]int
	// timer moves keys from waiting to ready. It is set to timerAt, which is at or before the due time of the first
	// waiting key, or not set.
	timer    *time.Timer
	timerAt  time.Duration
	timerSet bool
	sequence uint64
	maxKeys  int // maximum number of keys since the queue was empty
	phase    phase
}

// phase is the state of a queue.
type phase int8

const (
	open     phase = iota
	draining       // Add does nothing, ready keys are still handed out
	down           // Add does nothing, no key is handed out
)

// New returns an empty queue.
func New[K comparable, C any](config Config[K, C]) *Queue[K, C] {
	q := &Queue[K, C]{
		groupOf: config.Group,
		merge:   config.Merge,
		began:   time.Now(),
		items:   map[K]*item[K, C]{},
		groups:  map[string]*group[K, C]{},
		ready:   newReady[K, C](config.GroupLimit),
	}
	if q.groupOf == nil {
		q.groupOf = func(K) string { return "" }
	}
	q.available = sync.NewCond(&q.mu)
	return q
}

// now returns the current time as the duration since the queue was created. Durations are smaller than times, and
// faster to read and compare.
func (q *Queue[K, C]) now() time.Duration { return time.Since(q.began) }

// Add adds key, or merges with its entry. It never blocks. It returns false if it has changed nothing: an earlier run
// is planned, or the queue is drained or shut down.
func (q *Queue[K, C]) Add(key K, o Options[C]) bool {
	o.Priority = min(max(o.Priority, PriorityLow), PriorityHigh)
	o.merge = q.merge
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != open {
		return false
	}
	entry := q.items[key]
	if entry == nil {
		entry = q.enter(key)
	}
	if entry.state == inReady {
		if o.After > 0 {
			return false // an earlier run is planned, and will decide
		}
		o.addTo(&entry.next.causes)
		q.ready.raise(entry, o.Priority)
		return true
	}
	// With the lock held: a key that another Add has made ready must be ready here too.
	now := q.now()
	if entry.state == nowhere || entry.state == processing {
		entry.next.begin(&o, now)
		q.file(entry, now)
		return true
	}
	before := entry.next.schedule
	changed := entry.next.merge(&o, now)
	if entry.next.due != before.due || stateFor(entry.next.reason) != stateFor(before.reason) {
		q.file(entry, now)
	}
	return changed
}

// addTo adds the causes of an Add to others.
func (o *Options[C]) addTo(causes *Causes[C]) {
	causes.Add(o.Cause, o.merge)
	causes.AddAll(o.Causes, o.merge)
}

// Get returns the next key, and blocks until there is one. The caller must call Done with the key after its work, or
// Hold if the work has not begun. ok is false after ShutDown, even if keys are left, and after Drain when no key is
// left.
func (q *Queue[K, C]) Get() (item Item[K, C], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.phase != down && !q.drained() {
		now := q.now()
		if entry := q.ready.take(now); entry != nil {
			entry.current, entry.released = entry.next.taken, false
			q.move(entry, processing)
			if q.drained() {
				q.available.Broadcast() // the last key
			}
			r := &entry.current
			if r.heldFrom > 0 {
				r.held, r.heldFrom = r.held+entry.readySince-r.heldFrom, 0
			}
			return Item[K, C]{
				Key: entry.key, Causes: r.causes, Priority: r.priority, Wait: now - r.since,
				Held: r.held,
			}, true
		}
		q.available.Wait()
	}
	return Item[K, C]{}, false
}

// Done marks key as processed. If the key was added in the meantime, it is delayed or ready again. Done does nothing
// for a key that is not processing.
func (q *Queue[K, C]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if entry := q.items[key]; entry.isProcessing() {
		q.giveBack(entry)
	}
}

// giveBack ends the processing of an item, and files or removes it.
func (q *Queue[K, C]) giveBack(entry *item[K, C]) {
	if !entry.exempt && q.ready.release(entry.group) {
		q.available.Signal()
	}
	entry.exempt = false
	isRequeued := entry.state == processingAgain
	q.move(entry, nowhere)
	if isRequeued && (q.phase == open ||
		q.phase == draining && (entry.next.due <= q.now() || entry.next.reason == held)) {
		entry.current = taken[C]{}
		q.file(entry, q.now())
	} else {
		q.forget(entry)
	}
}

// file puts an item into the state of its next run. The item must not be ready.
func (q *Queue[K, C]) file(entry *item[K, C], now time.Duration) {
	if entry.state.waits() {
		q.waiting.remove(entry)
	}
	q.sequence++
	entry.sequence = q.sequence
	switch {
	case entry.isProcessing():
		q.move(entry, processingAgain)
	case entry.next.due > now:
		q.move(entry, stateFor(entry.next.reason))
		entry.at = entry.next.due
		q.waiting.push(entry)
		q.setTimer(now)
	default:
		q.makeReady(entry, now)
	}
}

// makeReady makes an item ready. The item must be due and not in a heap.
func (q *Queue[K, C]) makeReady(entry *item[K, C], now time.Duration) {
	if entry.next.reason != held {
		entry.next.since = entry.next.due
	}
	q.move(entry, inReady)
	if q.ready.push(entry, now) {
		q.available.Signal()
	}
}

// setTimer ensures that the timer fires when the first waiting key is due.
func (q *Queue[K, C]) setTimer(now time.Duration) {
	if len(q.waiting) == 0 {
		return
	}
	first := q.waiting[0].at
	switch {
	case q.timer == nil:
		// This goroutine is not waited for: it holds the lock for its whole life, and does nothing after Drain or
		// ShutDown.
		q.timer = time.AfterFunc(first-now, q.releaseDue)
	case !q.timerSet || first < q.timerAt:
		q.timer.Reset(first - now)
	default:
		return
	}
	q.timerAt, q.timerSet = first, true
}

// releaseDue is called by the timer. It makes the due keys ready.
func (q *Queue[K, C]) releaseDue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase == down {
		return
	}
	now := q.now()
	q.timerSet = false
	for len(q.waiting) > 0 && q.waiting[0].at <= now {
		q.makeReady(q.waiting.pop(), now)
	}
	q.setTimer(now)
}

// Drain makes the queue run empty: from now on Add does nothing, and delayed keys are removed. Ready keys are still
// handed out, including those that wait for their group's limit, those that were added while they are taken, and, when
// their time has come, held keys (see Hold). When none is left, Get returns false. A key that is added again while it
// is taken becomes ready at Done, so workers must call Get until it returns false.
func (q *Queue[K, C]) Drain() { q.end(draining) }

// ShutDown ends the queue: from now on Get returns false, Add does nothing, and all keys are removed. Workers that have
// a key finish it and call Done.
func (q *Queue[K, C]) ShutDown() { q.end(down) }

// end moves the queue to a later phase.
func (q *Queue[K, C]) end(next phase) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase >= next {
		return
	}
	q.phase = next
	if q.timer != nil {
		q.timer.Stop()
		q.timerSet = false
	}
	q.waiting = nil
	if next == down {
		q.ready = newReady[K, C](q.ready.limit)
	}
	for _, entry := range q.items {
		if next == down {
			entry.group.clearReady()
		}
		switch {
		case next == draining && entry.state == inHold && !entry.endsWithDrain:
			q.waiting.push(entry)
		case entry.state.waits(), next == down && entry.state == inReady:
			q.forget(entry)
		}
	}
	q.setTimer(q.now())
	q.available.Broadcast()
}

// drained reports whether the queue is drained and no key is left.
func (q *Queue[K, C]) drained() bool {
	return q.phase == draining && q.count[inReady] == 0 && q.count[inHold] == 0
}

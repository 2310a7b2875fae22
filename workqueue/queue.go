// Package workqueue is the queue between what happens in the cluster and the workers
// that handle it: a deduplicating, delaying, prioritised and fair queue of keys that knows why
// each key is in it.
//
// To read it: this file has the way of a key through the queue, schedule.go says when a key is
// due, and bands.go in which order keys that are due are handed out.
package workqueue

import (
	"sync"
	"time"
)

// Queue hands each key to one worker at a time.
//
// Guarantees:
//   - A key is in the queue at most once; adding it again merges.
//   - A key that was taken with Get is not handed out again before Done or Hold; if it was
//     added in between, it comes again after that.
//   - When a key waits for one time and is added for another, the earlier time wins. Where an
//     Add with After waits alone, its cause is superseded by an Add for an earlier time,
//     because the run that comes first decides anew. Keys that back off or are held wait to
//     the end, and keep every cause: see Options.BackOff and Hold.
//   - Among keys that are due, those of the highest priority go first, but for what is overdue;
//     among these, groups take turns, a key each; in a group, the key that has been due for
//     longest is first. Age changes nothing of that: however old a group's keys are, a new key
//     of another group with the same priority waits for no more than its group's turn.
//   - Nothing starves: a priority is overdue once a ready key has had it for PriorityPatience.
//     From then on at least one in four of the keys that are taken is of that priority; one in
//     eight when two priorities are overdue that are not the highest. Of those, the Nth key of a
//     group is among the next N times G when G groups have some. Where there is a GroupLimit,
//     that holds for as long as the group is below it.
//   - Get does not block while there is a key that may be taken.
//
// Every operation takes one lock and O(log n) time; Snapshot, Drain and ShutDown, which see all
// keys, take O(n). The zero value is not usable; New makes a queue.
type Queue[K comparable] struct {
	// Immutable after New.
	groupOf func(K) string
	began   time.Time

	mu sync.Mutex
	// takable wakes workers. It is signalled once for each key more that could be taken, and
	// broadcast when Get has to return false.
	takable *sync.Cond
	// All below is guarded by mu.

	// items holds every key that is waiting, ready, or taken, and groups the groups of these.
	items  map[K]*item[K]
	groups map[string]*group[K]
	// only is the group of all keys where the config has no groups. It is never forgotten.
	only group[K]
	// waiting holds the keys that are not due yet, in the order in which they will be.
	waiting byTime[K]
	// free holds items for keys to come, and spare is a group for them: most queues are short
	// most of the time, and then an Add allocates nothing but its cause.
	free  []*item[K]
	spare *group[K]
	// ready holds the keys that are due.
	ready ready[K]
	// count is how many keys are in each place.
	count [places]int
	// timer moves keys from waiting to ready. It is set for timerAt, which is at or before the
	// due time of the first waiting key, or not set.
	timer    *time.Timer
	timerAt  time.Duration
	timerSet bool
	sequence uint64
	most     int // keys since the queue was empty
	phase    phase
}

// item is a key in the queue.
type item[K comparable] struct {
	key   K
	group *group[K]
	// next is the run that is to come; while the place is running it is out of date.
	next run
	// current is what the worker has been given that has the key.
	current taken

	// at and sequence order the item among those that wait, or those that are ready: the
	// sequence keeps keys of equal time in the order in which they got that time.
	at       time.Duration
	sequence uint64
	index    int // in the heap, where it is in one

	// readySince is since when the item is in ready.
	readySince time.Duration
	place      place
	links      [lists]link[K]
}

// phase is how far a queue is in its life.
type phase int8

const (
	open     phase = iota
	draining       // no key comes in, and those that are ready go out
	down           // no key comes in or goes out
)

// New returns an empty queue.
func New[K comparable](config Config[K]) *Queue[K] {
	q := &Queue[K]{
		groupOf: config.Group,
		began:   time.Now(),
		items:   map[K]*item[K]{},
		groups:  map[string]*group[K]{},
		ready:   newReady[K](config.GroupLimit),
	}
	q.takable = sync.NewCond(&q.mu)
	return q
}

// now returns the moment. Moments are durations since the queue was made: these are smaller
// than times, and quicker to read and to compare.
func (q *Queue[K]) now() time.Duration { return time.Since(q.began) }

// Add puts key into the queue, or merges with what is there. It never blocks. It returns
// false when it has changed nothing: an earlier run is coming, or the queue is drained or shut
// down.
func (q *Queue[K]) Add(key K, o Options) bool {
	o.Priority = min(max(o.Priority, PriorityLow), PriorityHigh)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != open {
		return false
	}
	it := q.items[key]
	if it == nil {
		it = q.enter(key)
	}
	if it.place == inReady {
		if o.After > 0 {
			return false // an earlier run is coming, and will decide anew
		}
		it.next.causes.add(&o.Cause)
		q.ready.raise(it, o.Priority)
		return true
	}
	// Only with the lock held: what another Add has filed as due must be due here too.
	now := q.now()
	if it.place == nowhere || it.place == running {
		it.next.begin(&o, now)
		q.file(it, now)
		return true
	}
	before := it.next.schedule
	if !it.next.merge(&o, now) {
		return false
	}
	if it.next.due != before.due || placeOf(it.next.reason) != placeOf(before.reason) {
		q.file(it, now)
	}
	return true
}

// Get returns the next key, and blocks until there is one. The caller must call Done with the
// key when its work ends, or Hold when it has not begun. ok is false after ShutDown, even when
// keys are left, and after Drain when none is.
func (q *Queue[K]) Get() (item Item[K], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.phase == down || q.phase == draining && q.ready.len == 0 {
			return Item[K]{}, false
		}
		now := q.now()
		if it := q.ready.take(now); it != nil {
			it.current = it.next.taken
			q.move(it, running)
			if q.phase == draining && q.ready.len == 0 {
				q.takable.Broadcast() // this was the last
			}
			r := &it.current
			if r.heldFrom > 0 {
				r.held, r.heldFrom = r.held+it.readySince-r.heldFrom, 0
			}
			return Item[K]{Key: it.key, Causes: r.causes, Priority: r.priority, Wait: now - r.since, Held: r.held}, true
		}
		q.takable.Wait()
	}
}

// Done says that the worker has finished with key. If the key was added in the
// meantime, it is filed again. Done of a key that was not taken does nothing.
func (q *Queue[K]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil || !it.taken() {
		return
	}
	q.giveBack(it)
}

// giveBack ends the taking of an item, and files or forgets it.
func (q *Queue[K]) giveBack(it *item[K]) {
	if q.ready.release(it.group) {
		q.takable.Signal()
	}
	again := it.place == runningAgain
	q.move(it, nowhere)
	if again {
		now := q.now()
		if q.phase == open || q.phase == draining && it.next.due <= now {
			it.current = taken{}
			q.file(it, now)
			return
		}
	}
	q.forget(it)
}

// file puts an item where its next run says it belongs, from wherever it was but ready.
func (q *Queue[K]) file(it *item[K], now time.Duration) {
	if it.place.waits() {
		q.waiting.remove(it)
	}
	q.sequence++
	it.sequence = q.sequence
	switch {
	case it.taken():
		q.move(it, runningAgain)
	case it.next.due > now:
		q.move(it, placeOf(it.next.reason))
		it.at = it.next.due
		q.waiting.push(it)
		q.setTimer(now)
	default:
		q.makeReady(it, now)
	}
}

// makeReady moves an item that is due, and is in no heap, to ready.
func (q *Queue[K]) makeReady(it *item[K], now time.Duration) {
	if it.next.reason != held {
		it.next.since = it.next.due
	}
	q.move(it, inReady)
	if q.ready.push(it, now) {
		q.takable.Signal()
	}
}

// setTimer makes sure that the timer fires when the first waiting key is due.
func (q *Queue[K]) setTimer(now time.Duration) {
	if len(q.waiting) == 0 {
		return
	}
	first := q.waiting[0].at
	switch {
	case q.timer == nil:
		// The function needs no one to wait for it: it holds the lock for its whole life
		// and does nothing after Drain or ShutDown.
		q.timer = time.AfterFunc(first-now, q.releaseDue)
	case !q.timerSet || first < q.timerAt:
		q.timer.Reset(first - now)
	default:
		return
	}
	q.timerAt, q.timerSet = first, true
}

// releaseDue is the timer's function: it moves the keys that are due now to ready.
func (q *Queue[K]) releaseDue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != open {
		return
	}
	now := q.now()
	q.timerSet = false
	for len(q.waiting) > 0 && q.waiting[0].at <= now {
		q.makeReady(q.waiting.pop(), now)
	}
	q.setTimer(now)
}

// enter makes an item for a key that is not in the queue.
func (q *Queue[K]) enter(key K) *item[K] {
	g := &q.only
	if q.groupOf != nil {
		name := q.groupOf(key)
		if g = q.groups[name]; g == nil {
			g, q.spare = q.spare, nil
			if g == nil {
				g = new(group[K])
			}
			g.name = name
			q.groups[name] = g
		}
	}
	g.items++
	var it *item[K]
	if last := len(q.free) - 1; last >= 0 {
		it, q.free = q.free[last], q.free[:last]
	} else {
		it = new(item[K])
	}
	it.key, it.group = key, g
	q.items[key] = it
	q.count[nowhere]++
	q.most = max(q.most, len(q.items))
	return it
}

// largeQueue is from how many keys on a queue gives its memory back when it is empty again:
// neither a map nor a slice shrinks by itself.
const largeQueue = 4096

// freeItems is how many items are kept for keys to come.
const freeItems = 256

// forget removes an item that is nowhere, and with the last one what a large queue needed.
func (q *Queue[K]) forget(it *item[K]) {
	q.count[it.place]--
	delete(q.items, it.key)
	if g := it.group; g.items > 1 || g == &q.only {
		g.items--
	} else {
		delete(q.groups, g.name)
		*g = group[K]{}
		q.spare = g
	}
	*it = item[K]{}
	if len(q.free) < freeItems {
		q.free = append(q.free, it)
	}
	if len(q.items) == 0 && q.most > largeQueue {
		q.items, q.groups, q.only = map[K]*item[K]{}, map[string]*group[K]{}, group[K]{}
		q.waiting, q.free, q.most = nil, nil, 0
	}
}

// Drain lets the queue run empty: Add does nothing from now on, and keys that are not due are
// forgotten. Keys that are due are still handed out, also those that wait for their group's
// limit and those that were added while they are taken; when none is left, Get returns false.
// Of a key that is added again while it is taken, the worker that has it gets to know first,
// so workers must call Get until it returns false.
func (q *Queue[K]) Drain() { q.end(draining) }

// ShutDown ends the queue: Get returns false from now on, Add does nothing, and what
// was in the queue is forgotten. Workers that have a key finish it and call Done.
func (q *Queue[K]) ShutDown() { q.end(down) }

// end moves the queue to a later phase of its life.
func (q *Queue[K]) end(next phase) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase >= next {
		return
	}
	q.phase = next
	if q.timer != nil {
		q.timer.Stop()
	}
	q.waiting = nil
	if next == down {
		q.ready = newReady[K](q.ready.limit)
	}
	for _, it := range q.items {
		if next == down {
			it.group.noneReady()
		}
		if it.place.waits() || next == down && it.place == inReady {
			q.forget(it)
		}
	}
	q.takable.Broadcast()
}

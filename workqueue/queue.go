// Package workqueue is the queue between what happens in the cluster and the workers
// that handle it: a deduplicating, delaying, prioritised queue of keys that knows why
// each key is in it.
package workqueue

import (
	"container/heap"
	"sync"
	"time"
)

// Priority orders keys that are due. Higher runs first, but nothing starves: a key is
// never passed by keys that became due more than LowPriorityPatience after it.
type Priority int

// The priorities.
const (
	// PriorityLow is for work that nobody waits for: first lists and resyncs.
	PriorityLow Priority = -1
	// PriorityNormal is for changes, retries and requeues.
	PriorityNormal Priority = 0
)

// LowPriorityPatience is how long a due key of low priority lets keys of normal
// priority go first. Ordering by due time plus patience gives aging without a sweep:
// the older a key of low priority is, the fewer new ones pass it.
const LowPriorityPatience = 30 * time.Second

// Options says how a key is added.
type Options struct {
	// Cause is why. Required.
	Cause Cause
	// After is how long the key waits before it is due. Default 0: due now.
	After time.Duration
	// Priority orders the key among those that are due. Default PriorityNormal.
	Priority Priority
}

// Item is a key that a worker has taken, and what is known about its way here.
type Item[K comparable] struct {
	Key    K
	Causes Causes
	// Priority is the highest of the Adds that made the key due.
	Priority Priority
	// Wait is how long the key was due before a worker took it.
	Wait time.Duration
}

// Queue hands each key to one worker at a time.
//
// Guarantees:
//   - A key is in the queue at most once; adding it again merges.
//   - A key that was taken with Get is not handed out again before Done; if it was
//     added in between, it comes again after Done.
//   - When a key waits for one time and is added for another, the earlier time wins. The
//     causes that are kept are those that are due then: what was scheduled for later
//     is superseded, because the run that comes first decides anew.
//   - Among due keys the order is by priority and then by time; see LowPriorityPatience.
//
// Every operation takes one lock and O(log n) time. The zero value is not usable; New
// makes a queue.
type Queue[K comparable] struct {
	mu sync.Mutex
	// notEmpty wakes workers; it is signalled once for each key that becomes ready, and
	// broadcast at shutdown.
	notEmpty *sync.Cond
	// All below is guarded by mu.

	// items holds every key that is waiting, ready, or taken. A taken key that was added
	// again is pending but in neither heap until Done.
	items map[K]*item[K]
	// waiting holds keys that are not due yet, earliest first.
	waiting byDue[K]
	// ready holds keys that are due, in the order in which workers get them.
	ready byRank[K]
	// timer moves keys from waiting to ready. It is set for timerAt, which is at or
	// before the due time of the first waiting key.
	timer    *time.Timer
	timerAt  time.Time
	sequence uint64
	taken    int
	down     bool
}

type item[K comparable] struct {
	key      K
	causes   Causes
	priority Priority
	due      time.Time
	sequence uint64 // keeps keys of equal rank in the order of their arrival
	index    int    // in the heap that holds the item
	place    place
	taken    bool // a worker has it
}

// place says where an item is. A taken item is nowhere, or pending.
type place int8

const (
	nowhere place = iota // taken, and not added again
	pending              // taken, and added again
	inWaiting
	inReady
)

// New returns an empty queue.
func New[K comparable]() *Queue[K] {
	q := &Queue[K]{items: map[K]*item[K]{}}
	q.notEmpty = sync.NewCond(&q.mu)
	return q
}

// Add puts key into the queue, or merges with what is there. It never blocks. It returns
// false when it has changed nothing: an earlier run is coming, or the queue is shut down.
func (q *Queue[K]) Add(key K, o Options) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return false
	}
	it, known := q.items[key]
	if known && it.place == inReady {
		if o.After > 0 {
			return false // an earlier run is coming, and will decide anew
		}
		q.mergeReady(it, o)
		return true
	}
	// Only with the lock held: what another Add has filed as due must be due here too.
	now := time.Now()
	due := now.Add(max(o.After, 0))
	if !known {
		it = &item[K]{key: key}
		q.items[key] = it
	}
	if it.place == nowhere {
		it.due, it.priority, it.causes = due, o.Priority, Causes{}
		it.causes.add(o.Cause)
		q.file(it, now)
		return true
	}
	return q.merge(it, due, o, now)
}

// mergeReady applies a further Add for now to an item that is ready.
func (q *Queue[K]) mergeReady(it *item[K], o Options) {
	it.causes.add(o.Cause)
	if o.Priority > it.priority {
		it.priority = o.Priority
		heap.Fix(&q.ready, it.index)
	}
}

// merge applies a further Add to an item that is waiting or pending.
func (q *Queue[K]) merge(it *item[K], due time.Time, o Options, now time.Time) bool {
	if due.After(now) && due.After(it.due) {
		return false // an earlier run is coming, and will decide anew
	}
	if it.due.After(now) && due.Before(it.due) {
		// What was scheduled for later is superseded.
		it.due, it.causes, it.priority = due, Causes{}, o.Priority
		it.causes.add(o.Cause)
		q.file(it, now)
		return true
	}
	it.causes.add(o.Cause)
	it.priority = max(it.priority, o.Priority)
	return true
}

// file puts an item that is not ready where its due time says it belongs.
func (q *Queue[K]) file(it *item[K], now time.Time) {
	if it.place == inWaiting {
		heap.Remove(&q.waiting, it.index)
	}
	switch {
	case it.taken:
		it.place = pending
	case it.due.After(now):
		it.place = inWaiting
		heap.Push(&q.waiting, it)
		q.setTimer(now)
	default:
		q.makeReady(it)
	}
}

func (q *Queue[K]) makeReady(it *item[K]) {
	q.sequence++
	it.sequence = q.sequence
	it.place = inReady
	heap.Push(&q.ready, it)
	q.notEmpty.Signal()
}

// setTimer makes sure that the timer fires when the first waiting key is due.
func (q *Queue[K]) setTimer(now time.Time) {
	if len(q.waiting) == 0 || q.down {
		return
	}
	first := q.waiting[0].due
	switch {
	case q.timer == nil:
		// The function needs no one to wait for it: it holds the lock for its whole life
		// and does nothing after ShutDown.
		q.timer = time.AfterFunc(first.Sub(now), q.releaseDue)
	case q.timerAt.IsZero() || first.Before(q.timerAt):
		q.timer.Reset(first.Sub(now))
	default:
		return
	}
	q.timerAt = first
}

// releaseDue is the timer's function: it moves the keys that are due now to ready.
func (q *Queue[K]) releaseDue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return
	}
	now := time.Now()
	q.timerAt = time.Time{}
	for len(q.waiting) > 0 && !q.waiting[0].due.After(now) {
		q.makeReady(heap.Pop(&q.waiting).(*item[K]))
	}
	q.setTimer(now)
}

// Get returns the next key. It blocks until one is due; ok is false after ShutDown,
// even when keys are left. The caller must call Done with the key when its work ends.
func (q *Queue[K]) Get() (taken Item[K], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 && !q.down {
		q.notEmpty.Wait()
	}
	if q.down {
		return Item[K]{}, false
	}
	it := heap.Pop(&q.ready).(*item[K])
	it.place, it.taken = nowhere, true
	q.taken++
	return Item[K]{Key: it.key, Causes: it.causes, Priority: it.priority, Wait: time.Since(it.due)}, true
}

// Done says that the worker has finished with key. If the key was added in the
// meantime, it is filed again. Done of a key that was not taken does nothing.
func (q *Queue[K]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it, known := q.items[key]
	if !known || !it.taken {
		return
	}
	it.taken = false
	q.taken--
	if it.place == nowhere || q.down {
		delete(q.items, key)
		q.shrink()
		return
	}
	q.file(it, time.Now())
}

// largeQueue is from how many keys on a queue gives its memory back when it is empty again:
// neither a map nor a slice shrinks by itself.
const largeQueue = 4096

// shrink gives the memory of a large queue back when it has become empty.
func (q *Queue[K]) shrink() {
	if len(q.items) == 0 && max(cap(q.ready), cap(q.waiting)) > largeQueue {
		q.items, q.ready, q.waiting = map[K]*item[K]{}, nil, nil
	}
}

// Stats are the queue's sizes at one moment.
type Stats struct {
	// Ready is how many keys are due and wait for a worker.
	Ready int
	// Waiting is how many keys are not due yet.
	Waiting int
	// Taken is how many keys workers have.
	Taken int
	// Down is true after ShutDown.
	Down bool
}

// Stats returns the queue's sizes.
func (q *Queue[K]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Ready: len(q.ready), Waiting: len(q.waiting), Taken: q.taken, Down: q.down}
}

// ShutDown ends the queue: Get returns false from now on, Add does nothing, and what
// was in the queue is forgotten. Workers that have a key finish it and call Done.
func (q *Queue[K]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return
	}
	q.down = true
	if q.timer != nil {
		q.timer.Stop()
	}
	for key, it := range q.items {
		if !it.taken {
			delete(q.items, key)
		}
	}
	q.waiting, q.ready = nil, nil
	q.notEmpty.Broadcast()
}

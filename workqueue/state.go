package workqueue

import "time"

// Place says where in the queue a key is.
type Place string

// The places.
const (
	// PlaceWaiting: the key is not due yet.
	PlaceWaiting Place = "waiting"
	// PlaceBackOff: the key has failed, and is not due yet.
	PlaceBackOff Place = "back-off"
	// PlaceHeld: a worker has given the key back with Hold.
	PlaceHeld Place = "held"
	// PlaceReady: the key is due, and waits for a worker or for its group's limit.
	PlaceReady Place = "ready"
	// PlaceRunning: a worker has the key.
	PlaceRunning Place = "running"
	// PlaceRunningAgain: a worker has the key, and it was added again.
	PlaceRunningAgain Place = "running, to run again"
)

// place says where an item is.
type place int8

const (
	nowhere      place = iota // for moments with the lock held
	inWaiting                 // for its time, or for the end of its debounce time
	inBackOff                 // in the heap of the waiting ones as well,
	inHold                    // and so is this
	inReady                   //
	running                   // taken
	runningAgain              // taken, and added again
	places
)

// waits reports whether items in p are in the heap of those that wait.
func (p place) waits() bool { return p == inWaiting || p == inBackOff || p == inHold }

// placeOf returns the place of a key that is not due.
func placeOf(r reason) place {
	switch r {
	case backingOff:
		return inBackOff
	case held:
		return inHold
	case delayed, planned:
	}
	return inWaiting
}

// taken reports whether a worker has the item.
func (it *item[K]) taken() bool { return it.place == running || it.place == runningAgain }

// move notes where an item is now.
func (q *Queue[K]) move(it *item[K], to place) {
	q.count[it.place]--
	q.count[to]++
	it.place = to
}

// Stats are the queue's sizes at one moment.
type Stats struct {
	// Ready is how many keys are due and wait for a worker, or for their group's limit.
	Ready int
	// Waiting is how many keys are not due yet, but for those that back off or are held.
	Waiting int
	// BackOff is how many keys have failed and are not due yet.
	BackOff int
	// Held is how many keys workers have given back with Hold.
	Held int
	// Taken is how many keys workers have.
	Taken int
	// Groups is how many groups have ready keys.
	Groups int
	// OldestReady is since when the key has been ready that has been so for longest. Zero:
	// there is none.
	OldestReady time.Time
	// Down is true after Drain and ShutDown: no key can be added any more.
	Down bool
}

// Stats returns the queue's sizes.
func (q *Queue[K]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{
		Ready:   q.count[inReady],
		Waiting: q.count[inWaiting],
		BackOff: q.count[inBackOff],
		Held:    q.count[inHold],
		Taken:   q.count[running] + q.count[runningAgain],
		Groups:  q.ready.groups,
		Down:    q.phase != open,
	}
	if it := q.ready.oldest(); it != nil {
		s.OldestReady = q.began.Add(it.readySince)
	}
	return s
}

// State is what the queue knows of a key at one moment.
type State[K comparable] struct {
	Key   K
	Place Place
	// Due is when the key is due, or since when; of one that is held, when it is at the latest.
	// Causes and Priority are those of that run. Of PlaceRunning it is the run that goes
	// on; of PlaceRunningAgain the one after it.
	Due      time.Time
	Causes   Causes
	Priority Priority
}

// Lookup returns what the queue knows of a key; ok is false when the key is not in the queue.
func (q *Queue[K]) Lookup(key K) (state State[K], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil {
		return State[K]{}, false
	}
	return q.state(it), true
}

// Snapshot returns the state of up to limit keys, in no order. It holds the queue's lock for
// some hundred nanoseconds a key.
func (q *Queue[K]) Snapshot(limit int) []State[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	states := make([]State[K], 0, max(0, min(limit, len(q.items))))
	for _, it := range q.items {
		if len(states) == cap(states) {
			break
		}
		states = append(states, q.state(it))
	}
	return states
}

func (q *Queue[K]) state(it *item[K]) State[K] {
	s := State[K]{Key: it.key}
	r, due := &it.next.taken, it.next.due
	switch it.place {
	case inWaiting, nowhere, places:
		s.Place = PlaceWaiting
	case inBackOff:
		s.Place = PlaceBackOff
	case inHold:
		s.Place = PlaceHeld
	case inReady:
		s.Place, due = PlaceReady, r.since
	case running:
		s.Place, r, due = PlaceRunning, &it.current, it.current.since
	case runningAgain:
		s.Place = PlaceRunningAgain
	}
	s.Due = q.began.Add(due)
	s.Causes = r.causes.clone() // it grows while it waits
	s.Priority = r.priority
	return s
}

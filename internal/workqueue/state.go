package workqueue

import "time"

// Place is the state of a key in the queue.
type Place string

// The places.
const (
	// PlaceWaiting: the key is delayed.
	PlaceWaiting Place = "waiting"
	// PlaceBackOff: the key has failed, and is in backoff.
	PlaceBackOff Place = "back-off"
	// PlaceHeld: a worker has returned the key with Hold.
	PlaceHeld Place = "held"
	// PlaceReady: the key is ready, and waits for a worker or for its group's limit.
	PlaceReady Place = "ready"
	// PlaceRunning: a worker is processing the key.
	PlaceRunning Place = "running"
	// PlaceRunningAgain: a worker is processing the key, and it was added again.
	PlaceRunningAgain Place = "running, to run again"
)

// place is the state of an item.
type place int8

const (
	nowhere      place = iota // temporarily, with the lock held
	inWaiting                 // delayed, or debounced
	inBackOff                 // in the heap of the waiting ones too
	inHold                    // in the heap of the waiting ones too
	inReady                   //
	running                   // taken
	runningAgain              // taken, and added again
	places
)

// waits reports whether items in p are in the heap of waiting items.
func (p place) waits() bool { return p == inWaiting || p == inBackOff || p == inHold }

// placeOf returns the place of a key that is not ready.
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

// taken reports whether a worker has taken the item.
func (entry *item[K]) taken() bool { return entry.place == running || entry.place == runningAgain }

// move changes the place of an item.
func (q *Queue[K]) move(entry *item[K], to place) {
	q.count[entry.place]--
	q.count[to]++
	entry.place = to
}

// Stats are the queue's sizes at one time.
type Stats struct {
	// Ready is the number of keys that are ready and wait for a worker or for their group's limit.
	Ready int
	// Waiting is the number of delayed keys, without those in backoff and held ones.
	Waiting int
	// BackOff is the number of keys in backoff.
	BackOff int
	// Held is the number of keys that workers have returned with Hold.
	Held int
	// Taken is the number of keys that workers are processing.
	Taken int
	// Groups is the number of groups with ready keys.
	Groups int
	// OldestReady is the time when the oldest ready key became ready, or zero.
	OldestReady time.Time
	// Down is true after Drain and ShutDown: no key can be added.
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
	if entry := q.ready.oldest(); entry != nil {
		s.OldestReady = q.began.Add(entry.readySince)
	}
	return s
}

// State is the state of a key at one time.
type State[K comparable] struct {
	Key   K
	Place Place
	// Due is the time when the key becomes or became ready; for a held key it is the latest time. Causes and Priority
	// belong to the same run: for PlaceRunning the current one, for PlaceRunningAgain the next one.
	Due      time.Time
	Causes   Causes
	Priority Priority
}

// Lookup returns the state of a key. ok is false if the queue does not contain it.
func (q *Queue[K]) Lookup(key K) (state State[K], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil {
		return State[K]{}, false
	}
	return q.state(entry), true
}

// Snapshot returns the state of up to limit keys, in no particular order. It holds the queue's lock for some hundred
// nanoseconds per key.
func (q *Queue[K]) Snapshot(limit int) []State[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	states := make([]State[K], 0, max(0, min(limit, len(q.items))))
	for _, entry := range q.items {
		if len(states) == cap(states) {
			break
		}
		states = append(states, q.state(entry))
	}
	return states
}

func (q *Queue[K]) state(entry *item[K]) State[K] {
	s := State[K]{Key: entry.key}
	r, due := &entry.next.taken, entry.next.due
	switch entry.place {
	case inWaiting, nowhere, places:
		s.Place = PlaceWaiting
	case inBackOff:
		s.Place = PlaceBackOff
	case inHold:
		s.Place = PlaceHeld
	case inReady:
		s.Place, due = PlaceReady, r.since
	case running:
		s.Place, r, due = PlaceRunning, &entry.current, entry.current.since
	case runningAgain:
		s.Place = PlaceRunningAgain
	}
	s.Due = q.began.Add(due)
	s.Causes = r.causes.clone() // the original changes while the key waits
	s.Priority = r.priority
	return s
}

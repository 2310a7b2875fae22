package workqueue

import "time"

// KeyState is the state of a key in the queue.
type KeyState string

// The states of keys.
const (
	// Delayed: the key is delayed.
	Delayed KeyState = "delayed"
	// Backoff: the key has failed, and is in backoff.
	Backoff KeyState = "backoff"
	// Held: a worker has returned the key with Hold.
	Held KeyState = "held"
	// Ready: the key is ready, and waits for a worker or for its group's limit.
	Ready KeyState = "ready"
	// Processing: a worker is processing the key.
	Processing KeyState = "processing"
	// ProcessingAgain: a worker is processing the key, and it was added again.
	ProcessingAgain KeyState = "processing, added again"
)

// state is the state of an item.
type state int8

const (
	nowhere         state = iota // temporarily, with the lock held
	inDelay                      // delayed, or debounced
	inBackoff                    // in the heap of the waiting ones too
	inHold                       // in the heap of the waiting ones too
	inReady                      //
	processing                   // a worker processes it
	processingAgain              // the same, and it was added again
	states
)

// waits reports whether items in s are in the heap of waiting items.
func (s state) waits() bool { return s == inDelay || s == inBackoff || s == inHold }

// stateFor returns the state of a key that is not ready.
func stateFor(r reason) state {
	return [...]state{delayed: inDelay, planned: inDelay, backoff: inBackoff, held: inHold}[r]
}

// isProcessing reports whether a worker processes the item. entry may be nil.
func (entry *item[K, C]) isProcessing() bool {
	return entry != nil && (entry.state == processing || entry.state == processingAgain)
}

// move changes the state of an item.
func (q *Queue[K, C]) move(entry *item[K, C], to state) {
	q.count[entry.state]--
	q.count[to]++
	entry.state = to
}

// Stats are the queue's sizes at one time.
type Stats struct {
	// Ready is the number of keys that are ready and wait for a worker or for their group's limit.
	Ready int
	// ReadyLow, ReadyNormal and ReadyHigh are the parts of Ready by priority.
	ReadyLow, ReadyNormal, ReadyHigh int
	// Delayed is the number of delayed keys, without those in backoff and held ones.
	Delayed int
	// Backoff is the number of keys in backoff.
	Backoff int
	// Held is the number of keys that workers have returned with Hold.
	Held int
	// Processing is the number of keys that workers are processing.
	Processing int
	// OldestReady is the time when the oldest ready key became ready, or zero.
	OldestReady time.Time
	// Down is true after Drain and ShutDown: no key can be added.
	Down bool
}

// Stats returns the queue's sizes.
func (q *Queue[K, C]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{
		Ready:      q.count[inReady],
		Delayed:    q.count[inDelay],
		Backoff:    q.count[inBackoff],
		Held:       q.count[inHold],
		Processing: q.count[processing] + q.count[processingAgain],
		Down:       q.phase != open,
	}
	s.ReadyLow, s.ReadyNormal, s.ReadyHigh = q.ready.counts[0], q.ready.counts[1], q.ready.counts[2]
	if entry := q.ready.oldest(); entry != nil {
		s.OldestReady = q.began.Add(entry.readySince)
	}
	return s
}

// Entry is a key in the queue at one time.
type Entry[K comparable, C any] struct {
	Key   K
	State KeyState
	// Due is the time when the key becomes or became ready; for a held key it is the latest time. Causes and Priority
	// belong to the same run: for Processing the current one, for ProcessingAgain the next one.
	Due      time.Time
	Causes   Causes[C]
	Priority Priority
}

// Lookup returns the state of a key. ok is false if the queue does not contain it.
func (q *Queue[K, C]) Lookup(key K) (found Entry[K, C], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry := q.items[key]
	if entry == nil {
		return Entry[K, C]{}, false
	}
	return q.entryOf(entry), true
}

// Snapshot returns the state of up to limit keys, in no particular order. It holds the queue's lock for some hundred
// nanoseconds per key.
func (q *Queue[K, C]) Snapshot(limit int) []Entry[K, C] {
	q.mu.Lock()
	defer q.mu.Unlock()
	entries := make([]Entry[K, C], 0, max(0, min(limit, len(q.items))))
	for _, entry := range q.items {
		if len(entries) == cap(entries) {
			break
		}
		entries = append(entries, q.entryOf(entry))
	}
	return entries
}

func (q *Queue[K, C]) entryOf(entry *item[K, C]) Entry[K, C] {
	s := Entry[K, C]{Key: entry.key, State: [states]KeyState{
		nowhere: Delayed, inDelay: Delayed, inBackoff: Backoff, inHold: Held, inReady: Ready, processing: Processing,
		processingAgain: ProcessingAgain,
	}[entry.state]}
	r, due := &entry.next.taken, entry.next.due
	switch entry.state {
	case inReady:
		due = r.since
	case processing:
		r, due = &entry.current, entry.current.since
	}
	s.Due = q.began.Add(due)
	s.Causes = r.causes.Clone() // the original changes while the key waits
	s.Priority = r.priority
	return s
}

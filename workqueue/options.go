package workqueue

import "time"

// Config says how a queue shares its workers among keys. The zero value is one group of all
// keys, without a limit.
type Config[K comparable] struct {
	// Group returns the name of a key's group. Groups take turns, so that one with many keys
	// delays the others by no more than its share. It must be quick, return the same for the
	// same key, and not call the queue. Default nil: all keys are one group.
	Group func(K) string
	// GroupLimit is how many keys of one group may be taken at the same time. Default 0, as
	// any negative value: no limit.
	GroupLimit int
}

// Priority orders keys that are due. Values beyond the constants count as the nearest.
type Priority int

// The priorities.
const (
	// PriorityLow is for work that nobody waits for: first lists and resyncs.
	PriorityLow Priority = -1
	// PriorityNormal is for changes, retries and requeues.
	PriorityNormal Priority = 0
	// PriorityHigh is for what somebody waits for.
	PriorityHigh Priority = 1
)

// PriorityPatience is how long keys that are ready let those of higher priority go first. A
// priority is overdue when, of its ready keys, the one that has had it for longest has been ready
// for this long. While keys of a higher priority are ready as well, one in four of the keys that
// are taken is then of the overdue priority (one in eight, when there are two such), and the
// others are of the highest. Which key of a priority is next does not depend on this: keys never
// pass others of their own priority because of their age.
const PriorityPatience = 30 * time.Second

// MaxDebounce is for how many times Options.Debounce a key can be put off at most.
const MaxDebounce = 10

// Options says how a key is added.
type Options struct {
	// Cause is why. Required.
	Cause Cause
	// After is how long the key waits before it is due. Default 0, as any negative value: due
	// now.
	After time.Duration
	// Priority orders the key among those that are due. Default PriorityNormal.
	Priority Priority
	// Debounce is for keys that come again and again: the key is due when no Add has come for
	// this long, at the latest MaxDebounce times Debounce after the first. What comes
	// meanwhile merges. Default 0: no waiting. It has no effect together with After.
	Debounce time.Duration
	// BackOff says that the key has failed and waits for After, whatever is added meanwhile:
	// Adds without Wake merge with it and wait with it, also those that came while the key was
	// taken. It has no effect without After.
	BackOff bool
	// Wake ends a back-off, the one that goes on as well as the one that begins when the
	// worker that has the key reports a failure: the key is due as this Add says. It has no
	// effect together with BackOff, nor in an Add that returns false.
	Wake bool
	// WakeIf says of a cause whether it has Wake, and is asked where that matters only: of this
	// Add's, when the key is in back-off; with BackOff, of those that were added while the key
	// was taken (of which those that found no place are taken to have it). It is called with the
	// queue's lock held: it must be quick, and not call the queue. Default nil: none has.
	WakeIf func(Cause) bool
}

// Item is a key that a worker has taken, and what is known about its way here.
type Item[K comparable] struct {
	Key    K
	Causes Causes
	// Priority is the highest of the Adds that made the key due.
	Priority Priority
	// Wait is how long the key was due before a worker took it, and Held for how much of that
	// it was held: see Queue.Hold.
	Wait time.Duration
	Held time.Duration
}

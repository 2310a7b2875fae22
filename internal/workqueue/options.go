package workqueue

import "time"

// Config defines how keys share the workers of a queue. The zero value is one group without a limit.
type Config[K comparable, C any] struct {
	// Group returns the name of a key's group. Groups take turns, so that a group with many keys delays other groups
	// only by its share. It must be fast, return the same name for the same key, and not call the queue. Default nil:
	// all keys are one group.
	Group func(K) string
	// GroupLimit is the maximum number of keys of one group that may be processing at the same time. Default 0, as any
	// negative value: no limit.
	GroupLimit int
	// Merge merges equal causes. Default nil: all causes are different.
	Merge Merge[C]
}

// Priority orders ready keys. Values beyond the constants are treated as the nearest constant.
type Priority int

// The priorities.
const (
	// PriorityLow is for background work: first lists and resyncs.
	PriorityLow Priority = -1
	// PriorityNormal is for changes, retries and requeues.
	PriorityNormal Priority = 0
	// PriorityHigh is for urgent keys, for example if a user waits for the result.
	PriorityHigh Priority = 1
)

// StarvationTimeout is the time for which ready keys let those of higher priority go first. A priority is overdue if
// one of its ready keys has been ready, with that priority, for this time. While keys of a higher priority are ready
// too, one in four of the keys that are handed out then has the overdue priority (one in eight if two priorities are
// overdue), and the others have the highest one. The order within a priority does not depend on this: keys never
// overtake others of their own priority because of their age.
const StarvationTimeout = 30 * time.Second

// MaxDebounce is the maximum delay of a key by Options.Debounce, as a multiple of it.
const MaxDebounce = 10

// Options are the parameters of Add.
type Options[C any] struct {
	// Cause is the reason. Required.
	Cause C
	// Causes are further reasons. Default: none.
	Causes Causes[C]
	// After is the delay before the key becomes ready. Default 0, as any negative value: no delay.
	After time.Duration
	// Delay is the delay before an event counts: the key becomes ready after it. Unlike with After, the cause is never
	// lost: if the key runs earlier, the cause is merged with that run. Debounce does not delay the key further.
	// Default 0, as any negative value: no delay. It has no effect together with After.
	Delay time.Duration
	// Priority orders the key among the ready ones. Default PriorityNormal.
	Priority Priority
	// Debounce delays keys that are added repeatedly: the key becomes ready when it was not added for this time, at the
	// latest MaxDebounce times Debounce after the first Add. These Adds are merged. Default 0: no delay. It has no
	// effect together with After or Delay.
	Debounce time.Duration
	// Backoff means that the key has failed and must wait for After, even if it is added again: Adds without EndBackoff
	// are merged and wait too, including those while the key was processing. It has no effect without After.
	Backoff bool
	// EndBackoff ends a backoff, the current one as well as one that begins when the worker that has taken the key
	// reports a failure: the key becomes ready at the time of this Add. It has no effect together with Backoff, or in
	// an Add that returns false.
	EndBackoff bool
	// EndBackoffIf reports whether a cause has EndBackoff. It is only called if it matters: for this Add's cause if the
	// key is in backoff; with Backoff, for the causes that were added while the key was processing (dropped causes are
	// treated as having EndBackoff). It is called with the queue's lock held: it must be fast, and not call the queue.
	// Default nil: no cause has EndBackoff.
	EndBackoffIf func(C) bool

	merge Merge[C] // set by Add
}

// Item is a key that a worker has taken, with data about its wait.
type Item[K comparable, C any] struct {
	Key    K
	Causes Causes[C]
	// Priority is the highest priority of the Adds that made the key ready.
	Priority Priority
	// Wait is the time for which the key was ready before a worker took it. Held is the part of it for which it was
	// held: see Queue.Hold.
	Wait time.Duration
	Held time.Duration
}

package controller

import (
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Priority orders keys that are ready. Values beyond the constants are treated as the nearest constant.
//
// Keys with a higher priority go first. A priority is overdue if one of its keys has been ready for 30 s: one in four
// of the keys that workers then get has the overdue priority (one in eight if two priorities are overdue).
type Priority int

// The priorities.
const (
	// PriorityLow is for background work: first lists and resyncs.
	PriorityLow = Priority(workqueue.PriorityLow)
	// PriorityNormal is for changes, retries and requeues. It is the default.
	PriorityNormal = Priority(workqueue.PriorityNormal)
	// PriorityHigh is for urgent keys, for example if a user waits for the result.
	PriorityHigh = Priority(workqueue.PriorityHigh)
)

// queueEntry is a key in the queue at one time.
type queueEntry struct {
	Key kube.Key
	// State is one of:
	//   - "delayed": it becomes ready at Due
	//   - "backoff": its last run failed; it becomes ready at Due
	//   - "held": it is held back until informers show the writes of its last run, because it is in a hot loop, or
	//     because its handling was interrupted (ProblemInterrupted)
	//   - "ready": it waits for a worker
	//   - "processing": a worker handles it
	//   - "processing, added again": a worker handles it, and it becomes ready again after that
	State string
	// Due is the time when the key becomes or became ready; for a held key it is the latest time. Causes and Priority
	// belong to the same run: for "processing" the current one, for "processing, added again" the next one.
	Due      time.Time
	Causes   Causes
	Priority Priority
}

// The queue of a loop, a key that a worker has taken from it, and the parameters of its Add.
type (
	queue        = workqueue.Queue[kube.Key, Cause]
	queueItem    = workqueue.Item[kube.Key, Cause]
	queueOptions = workqueue.Options[Cause]
)

func newQueue(group func(kube.Key) string, groupLimit int) *queue {
	return workqueue.New(workqueue.Config[kube.Key, Cause]{Group: group, GroupLimit: groupLimit, Merge: (*Cause).merge})
}

func queueEntryOf(entry workqueue.Entry[kube.Key, Cause]) queueEntry {
	return queueEntry{
		Key: entry.Key, State: string(entry.State), Due: entry.Due,
		Causes: Causes{entry.Causes}, Priority: Priority(entry.Priority),
	}
}

// observed returns queued for a test environment, unless the controller stands by or has stopped: then nothing handles
// the keys.
func (c *Controller[T]) observed(limit int) (keys []observers.QueuedKey) {
	stats := c.Stats()
	if stats.Phase == PhaseStandby || stats.Phase == PhaseStopped {
		return nil
	}
	if n := stats.WaitingForRoom; n > 0 {
		keys = append(keys, observers.QueuedKey{Key: strconv.Itoa(n) + " other keys", State: "waiting for room"})
	}
	for _, e := range c.queued(limit) {
		keys = append(keys, observers.QueuedKey{
			Key: e.Key.String(), State: e.State, Causes: e.Causes.String(), Due: e.Due,
		})
	}
	return keys
}

package controller

import (
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Enqueue is what a Source calls for a key that should be run. It never blocks.
type Enqueue func(key kube.Key, why Trigger)

// Trigger is why a source enqueues a key. The zero value says nothing, which is allowed.
type Trigger struct {
	// Change is what the source has learnt of, when it was a change that an informer
	// announced. The cause then says which object it was, what changed and who wrote it; and
	// the controller finds out when it was nothing but the key's own write.
	Change informer.Change
	// Type is the type of the cause. Default: that of Change; without one, CauseTriggered.
	Type workqueue.CauseType
	// Detail says more, for people. It becomes the detail of the cause.
	Detail string
	// Priority orders the key among those that are due. Default PriorityNormal.
	Priority workqueue.Priority
	// FromList is for what the source has not learnt from an event, but from a list or a poll,
	// which can bring many keys at once. Unless Priority is high, the key waits until there is
	// room in the queue, and is then enqueued at low priority, once, and without Config.Debounce.
	// Changes go first. Default false; a Change that is FromList, and CauseListed, imply it.
	FromList bool
	// All means every object of the controller instead of key, which does not matter then: those
	// that have not run since are enqueued at low priority, as in the first pass. Before the first
	// pass it does nothing.
	All bool
}

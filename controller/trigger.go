package controller

import (
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
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
}

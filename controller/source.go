package controller

import (
	"context"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Source is anything other than the Retriever that makes keys run: changes of another kind
// (source.Owned, source.Mapped), a channel (source.Channel), a clock.
//
// Sources are run when the controller's informers (its own, and Config.Reads) are running,
// though not necessarily synced, and again in each term of leadership. A key without an
// object makes a run with OutcomeGone, in which the Handler is not called.
//
// A Source may also have a method Reads() []Readable, which names the informers that it
// learns from: the controller treats them like Config.Reads, so they are running when Run
// is called. It may have a method Start(ctx, enqueue) (stop func()), which is called in place
// of Run, and returns when nothing is missed any more: then no handler is called before. Or it may
// have a method Begin(enqueue) (run func(ctx) error): Begin is called before any handler, and what it
// returns in place of Run. It may have a method Validate() error, which New and AddSource ask for mistakes in how it was
// made; a method Ready() error, which Controller.Ready asks while it runs; and a method
// Name() string, which names it in causes and metrics: one of few. Without it, its type does.
type Source interface {
	// Run calls enqueue for keys that should be run, until ctx ends. An error ends the
	// controller.
	Run(ctx context.Context, enqueue Enqueue) error
}

// SourceFunc is a function as a Source.
type SourceFunc func(ctx context.Context, enqueue Enqueue) error

// Name names functions in causes and metrics. A source that is to have a name of its own is a
// type with this method.
func (f SourceFunc) Name() string { return "func" }

// Run implements Source.
func (f SourceFunc) Run(ctx context.Context, enqueue Enqueue) error {
	return f(ctx, enqueue)
}

// Readable is an informer of any type: *informer.Informer[T] is one for every T.
type Readable interface {
	// Join runs the informer until leave is called.
	Join(ctx context.Context) (leave func())
	// WaitSynced waits until the informer has listed everything, or ctx ends. Another error ends the controller.
	WaitSynced(ctx context.Context) error
	// Ready says what the informer lacks, or nil.
	Ready() error
}

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
	// room in the queue, and is then enqueued at low priority, once, and without Config.Queue.Debounce.
	// Changes go first. Default false; a Change that is FromList, and CauseListed, imply it.
	FromList bool
	// All means every object of the controller instead of key, which does not matter then: those
	// that have not run since are enqueued at low priority, as in the first pass. Before the first
	// pass it does nothing.
	All bool
}

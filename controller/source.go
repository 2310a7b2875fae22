package controller

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Source enqueues keys of objects for another reason than their own changes: changes of another kind (source.Owned,
// source.Mapped), an external service (source.Poll), a channel (source.Channel). A function is a Source as SourceFunc.
//
// A Source may be used by several controllers.
type Source interface {
	// Prepare returns how the controller runs the source, or the mistakes in its configuration. New and AddSource call
	// it once; it must start nothing and make no request.
	Prepare(target Target) (PreparedSource, error)
}

// Target is the controller that a Source is prepared for.
type Target struct {
	// Controller is the controller's name.
	Controller string
	// Kind is the kind of the controller's objects. Empty: it is not known.
	Kind schema.GroupVersionKind
	// Logger is the controller's. Its lines name the controller.
	Logger *slog.Logger
	// Metrics is for informers that the source makes. May be nil.
	Metrics informer.Recorder
}

// PreparedSource is a Source as one controller runs it. Exactly one of Run and Start is required.
//
// The controller runs it when its informers (its own, Config.Reads, and Reads) run, though they may not be synced yet,
// and again in each term of leadership. A key without an object makes a run with OutcomeGone, in which the Handler is
// not called. When the controller's objects are cluster-scoped, a key's namespace is ignored.
type PreparedSource struct {
	// Name identifies the source in causes and metrics: keep its cardinality low. Default: the type of the Source.
	Name string
	// Reads are the informers that the source reads. The controller treats them like Config.Reads. Default: none.
	Reads []informer.Any
	// Run enqueues keys until ctx ends. An error ends the controller.
	Run func(ctx context.Context, enqueue Enqueue) error
	// Start starts the source, and returns when it misses nothing from then on: no handler is called before. The
	// controller then calls run once, which returns when ctx has ended. An error of run ends the controller.
	Start func(ctx context.Context, enqueue Enqueue) (run func() error)
	// Ready returns what keeps the source from its work, or nil. It is called while the source runs, by
	// Controller.Ready and Controller.Problems. Default nil: the source is always ready.
	Ready func() error
}

// SourceFunc is a function as a Source: it enqueues keys until ctx ends. An error ends the controller.
type SourceFunc func(ctx context.Context, enqueue Enqueue) error

// Prepare implements Source. The name is "func".
func (f SourceFunc) Prepare(Target) (PreparedSource, error) {
	return PreparedSource{Name: "func", Run: f}, nil
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
	Type CauseType
	// Detail says more, for people. It becomes the detail of the cause.
	Detail string
	// Priority orders the key among those that are due. Default PriorityNormal.
	Priority Priority
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

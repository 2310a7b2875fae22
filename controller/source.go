package controller

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Source enqueues keys of objects for other reasons than their own changes: changes of another kind (source.Owned,
// source.Mapped), an external service (poll.New), a channel (source.Channel). SourceFunc makes a function a
// Source.
//
// A Source may be used by several controllers.
type Source interface {
	// Prepare returns how the controller runs the source, or an error if its configuration is invalid. New and
	// AddSource call it once. It must start nothing and make no request.
	Prepare(target Target) (PreparedSource, error)
}

// Target is the controller that a Source is prepared for.
type Target struct {
	// Controller is the controller's name.
	Controller string
	// Kind is the kind of the controller's objects. Empty: it is not known.
	Kind schema.GroupVersionKind
	// Logger is the controller's logger. Its lines contain the controller's name.
	Logger *slog.Logger
}

// PreparedSource is a Source as one controller runs it. Exactly one of Run and Start is required.
//
// The controller runs it while its informers (its own, Config.Reads, and Reads) run, though they may not be synced
// yet, and again in each term of leadership. A key without an object causes a run with OutcomeGone, in which the
// Handler is not called. If the controller's objects are cluster-scoped, a key's namespace is ignored.
type PreparedSource struct {
	// Name identifies the source in causes and metrics: keep its cardinality low. Default: the type of the Source.
	Name string
	// Reads are the informers that the source reads. The controller treats them like Config.Reads. Default: none.
	Reads []informer.Any
	// Run enqueues keys until ctx ends. An error ends the controller.
	Run func(ctx context.Context, enqueue Enqueue) error
	// Start starts the source. It must return once the source misses no further event: no handler is called before. An
	// error ends the controller, before the first handler unless the source was added later. Otherwise the controller
	// calls run once, which must return when ctx has ended; nil means that the source has ended. An error of run ends
	// the controller.
	Start func(ctx context.Context, enqueue Enqueue) (run func() error, err error)
	// Keys iterates over all keys that the source has now, in any order, and also several times: those that it would
	// enqueue as listed if it started now. A controller of NoObject calls it once in each resync interval while the
	// source runs: it resyncs these keys, and the keys that the source has enqueued since. Keys must be safe for
	// concurrent use with Run. Other controllers do not call it. Default nil: the source's keys are not resynced.
	Keys iter.Seq[kube.Key]
	// Ready returns an error if the source cannot work, or nil. It is called while the source runs, by
	// Controller.Ready and Controller.Problems. Default nil: the source is always ready.
	Ready func() error
}

// SourceFunc is a function as a Source: it enqueues keys until ctx ends. An error ends the controller.
type SourceFunc func(ctx context.Context, enqueue Enqueue) error

// Prepare implements Source. The name is "func".
func (f SourceFunc) Prepare(Target) (PreparedSource, error) {
	return PreparedSource{Name: "func", Run: f}, nil
}

// Enqueue is the function that a Source calls for a key that should run. It never blocks.
type Enqueue func(key kube.Key, why Trigger)

// Trigger is the reason why a source enqueues a key. The zero value is valid and gives no reason.
type Trigger struct {
	// Change is the change that an informer announced, if the source reacts to one. The cause then contains the
	// object, what changed and who wrote it, and the controller detects whether it was only the key's own write.
	Change informer.Change
	// Type is the type of the cause. Default: that of Change; without a Change, CauseTriggered.
	Type CauseType
	// Detail is more information for people. It becomes the detail of the cause.
	Detail string
	// After is the delay before the key becomes ready, for example if an external system needs some time before it
	// shows an effect, or to spread the runs of many keys. If the key runs earlier for another reason, the trigger is
	// merged with that run, and there is no later one: a handler that still has to wait returns RequeueAfter. A key in
	// backoff or held back stays so, and QueueConfig.Debounce does not add to the delay. Default 0, as any negative
	// value: at once.
	After time.Duration
	// Priority orders the key among the ready keys. Default PriorityNormal.
	Priority Priority
	// FromList marks a trigger that comes from a list or a poll instead of an event: such triggers can enqueue many
	// keys at once. Unless Priority is high, the key waits until there is room in the queue, and is then enqueued once,
	// at low priority and without Config.Queue.Debounce. Changes go first. With After, the key becomes ready after the
	// delay, also without room. Default false; a Change that is FromList, and CauseListed, imply it.
	FromList bool
	// All means every object of the controller (for NoObject, every key that a source lists), and key is ignored:
	// objects that have not run since are enqueued at low priority, as in the first pass. Before the first pass it has
	// no effect. After and Priority are ignored.
	All bool
}

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Defaults of Config.
const (
	DefaultWorkers        = 3
	DefaultResyncInterval = 3 * time.Minute
	// DefaultDrainTimeout ends 5 s before the kubelet kills: a Pod's
	// terminationGracePeriodSeconds is 30 unless it is set.
	DefaultDrainTimeout = 25 * time.Second
	// DefaultConsistencyTimeout is far above the lag of a watch that works, which is
	// milliseconds, and below the patience of who waits for the key.
	DefaultConsistencyTimeout = 10 * time.Second
	DefaultStuckAfter         = 5 * time.Minute
)

// Config says what a Controller is made of. It is taken by value: New neither keeps nor
// changes the caller's.
type Config[T kube.Object] struct {
	// Name tells the controller from others in logs, metrics and readiness. Required.
	Name string

	// Retriever lists and watches the objects, into a cache of the controller's own.
	// Either Retriever or Informer is required.
	Retriever informer.Retriever[T]
	// Informer is a cache to share with others, in place of Retriever. The controller
	// runs it while it runs itself.
	Informer *informer.Informer[T]

	// Reads are further informers that the Handler reads from. The controller runs them while
	// it runs itself, until the last handler has ended; no handler is called before they
	// are synced; and Ready says what they lack. When one fails later, handlers go on
	// with what it has: caches are always a little behind, and then they are more so.
	// Default: none.
	Reads []Readable

	// Handler is called with each object. Either Handler or Reconciler is required.
	Handler Handler[T]
	// Reconciler is called with each key, also of objects that are gone, in place of
	// Handler.
	Reconciler Reconciler

	// Predicate says which changes of the objects themselves make the handler run; package
	// predicate has the usual ones. What it drops is gone for good: until the next change, or
	// the next resync, the handler does not see that state. Default nil: every change.
	Predicate informer.Predicate
	// Sources enqueue further keys; Controller.AddSource adds more at run time. Default: none.
	Sources []Source

	// Workers is how many objects are handled at the same time. Default 3.
	Workers int
	// ResyncInterval is how often each object is handled again at low priority, whether or not
	// it changed; objects that fail, or that failed for good, are left to their retries. Each
	// object has its own moment in the interval, so that a start-up flood does not come back
	// as one; the first is a tenth of the interval after every object has been enqueued once, at
	// the earliest. Default 3 min; negative: never.
	ResyncInterval time.Duration
	// Debounce waits, before a key that something has happened to is run, until nothing more has
	// happened to it for this long, ten times this long at the most. Default 0: none.
	Debounce time.Duration
	// Priority says how urgent a change of the objects themselves is (those of sources say so in
	// their Trigger). What is less urgent waits for what is more; after
	// workqueue.PriorityPatience it gets a share of the workers. It is called as Predicate is. Default nil: a first
	// list and resyncs are low, everything else is normal.
	Priority func(informer.Change) workqueue.Priority
	// Group says which keys belong together: groups take turns, so that one with many keys does
	// not delay the others beyond its share. It is called with the queue's lock held: it must be
	// quick and do nothing else. Default: the namespace.
	Group func(key kube.Key) string
	// GroupLimit is how many keys of one group are handled at the same time. Default 0: as many
	// as there are workers.
	GroupLimit int

	// Retry says when failed keys are run again, by the class of the error. Default: after most
	// errors 5 ms later, then twice as long each time, up to 1000 s, without a limit to the
	// number of retries; retry.Defaults has the other classes. For no retries, set
	// Retry.Every.MaxRetries to -1: 0 means the default.
	Retry retry.Config
	// WakeOn says which causes end a key's back-off; the others wait with it. That the object is
	// deleted, or another one of its name is created, always ends it. Default WakeOnOwnChange. (RequeueAfter is no back-off: whatever comes first runs the key.) It is
	// called with locks held: it must be quick, and do nothing else.
	WakeOn func(workqueue.Cause) bool
	// HandleOwnWrites makes the handler run for the changes that its own writes are. Default
	// false: a change that is exactly what the key's last run has written does not make it run
	// again; so a handler that writes in order to be called again returns RequeueAfter(0)
	// instead. A deletion is always told, and so is every change of another hand. Only writes
	// are known that were made with the handler's context, through a client of the same
	// kube.Cluster as the informer's.
	HandleOwnWrites bool
	// ConsistencyTimeout is how long a key waits until the informers (the controller's own, those
	// in Reads, and those of sources) show what its last run has written. No worker waits for it,
	// and no other key. After that the handler runs all the same, which is reported as
	// TroubleUnseenWrite; while an informer says itself that it cannot watch, the key goes on
	// waiting. Default 10 s; negative: keys do not wait, and every write makes the handler run.
	ConsistencyTimeout time.Duration
	// Deleted is called when an object has gone, with the last state that is known, before the
	// handler is called for another of the same name. stale is true when it may not be the last
	// state that there was: a list has found the object gone. An error is retried like a
	// handler's.
	//
	// It is a best effort: deletions while no process works are not told, nor those for which
	// it failed before a restart, nor those that Predicate drops; after a terminal error, and when
	// it has used up its retries, it is not called again for that object. What must be cleaned
	// up for certain needs a finalizer. Default nil: keys whose object is gone are dropped.
	Deleted func(ctx context.Context, last T, stale bool) error

	// Timeout is after how long a handler's context is cancelled. Default 0: never.
	Timeout time.Duration
	// StuckAfter is after how long a handler that does not return is reported as TroubleStuck, with
	// its goroutine's stack, and another worker takes its place until it does. Default 5 min;
	// negative: never.
	StuckAfter time.Duration
	// UnreadyWhenStuck makes Ready name handlers that are stuck, so that a readiness probe
	// notices. Default false.
	UnreadyWhenStuck bool
	// DrainTimeout is how long handlers that are under way when Run's context ends may go
	// on before their contexts are cancelled. Keys that wait in the queue are not begun.
	// Default 25 s; negative: handlers are cancelled at once.
	DrainTimeout time.Duration
	// DrainQueue makes workers go on, when Run's context has ended, until the keys that are due
	// then have been handled or the drain time is over; also those that wait until an informer
	// shows what their last run wrote. Default false: keys that wait are left to the next start,
	// which handles every object.
	DrainQueue bool

	// LeaderElector lets the controller work only while it leads; package leader has
	// one. Default nil: it works at once.
	LeaderElector LeaderElector
	// Metrics receives measurements; metrics/prometheus has an adapter. Default nil
	// (also a nil pointer): none.
	Metrics Recorder
	// Events receives an Event about the object for each Trouble that concerns one;
	// event.Recorder writes them to the cluster while the program runs it (event.Recorder.Run).
	// Default nil (also a nil pointer): none.
	Events EventRecorder
	// Logger receives failed runs at warning level; panics, terminal errors and keys that
	// are given up at error level; the begin of work, a first list that takes long and
	// cancelled handlers at info level; and every run at debug level. Default:
	// slog.Default() at the time of New.
	Logger *slog.Logger
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

// LeaderElector runs work only while this process leads.
type LeaderElector interface {
	// Run calls work when leadership is gained, as often as that happens, until ctx ends.
	//
	// The context that work gets ends with ctx, or when leadership is lost; the latter is
	// reported by the cause kube.ErrLeadershipLost. Run waits for work
	// to return, and only then gives leadership up or stands again. When work returns
	// while leading, Run gives leadership up and returns work's error.
	//
	// An elector may also have a method Ready() error, which says why it can neither lead
	// nor stand by; Controller.Ready asks it.
	Run(ctx context.Context, work func(ctx context.Context) error) error
}

// Recorder receives a controller's measurements. Its methods are called on the way of
// every event and run, Triggered and Skipped also while the informer announces a change: they must be
// quick, safe for concurrent use, and must not call the controller or its informer.
type Recorder interface {
	informer.Recorder
	// ObserveController is called when a controller begins to run. The Recorder may call
	// stats at any time until stop is called. It must accept several controllers of the
	// same name.
	ObserveController(name string, stats func() Stats) (stop func())
	// Triggered is called when something puts a key into the queue, also when it merges with one
	// that is there. source is of a small fixed set: see workqueue.Cause.
	Triggered(controller, source string, cause workqueue.CauseType)
	// Skipped is called when a change does not put its key into the queue.
	Skipped(controller string, why SkipReason)
	// Troubled is called when an episode of trouble begins.
	Troubled(controller string, trouble TroubleType)
	// Handled is called after each run.
	Handled(controller string, run Handled)
}

// Handled is what a Recorder learns of a run.
type Handled struct {
	Outcome Outcome
	// Attempt is how many runs of the key failed in a row before this one: 0 unless this
	// run was a retry.
	Attempt int
	// Class is the class of the error of a run that failed. Otherwise empty.
	Class retry.Class
	// Wait is how long the key was due before the run, and Held for how much of that it was kept
	// back.
	Wait time.Duration
	Held time.Duration
	// Decode is how long reading the object from the cache took, Duration the whole run.
	Decode   time.Duration
	Duration time.Duration
	// Writes is how many writes the run made that were done and changed something.
	Writes int
	// TraceID is the trace that the run belongs to. Empty: none.
	TraceID string
}

func handledOf(r *Run) Handled {
	return Handled{
		Outcome: r.Outcome, Attempt: r.Attempt, Class: r.Class, Wait: r.Wait, Held: r.Held,
		Decode: r.Decode, Duration: r.Duration, Writes: r.writesDone, TraceID: r.TraceID,
	}
}

// withDefaults returns the config with every zero field set to its default.
func (c Config[T]) withDefaults() Config[T] {
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	c.ResyncInterval = cmp.Or(c.ResyncInterval, DefaultResyncInterval)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.ConsistencyTimeout = cmp.Or(c.ConsistencyTimeout, DefaultConsistencyTimeout)
	c.StuckAfter = cmp.Or(c.StuckAfter, DefaultStuckAfter)
	if c.Group == nil {
		c.Group = func(key kube.Key) string { return key.Namespace }
	}
	if c.WakeOn == nil {
		c.WakeOn = WakeOnOwnChange
	}
	c.WakeOn = wakeOn(c.WakeOn)
	// A nil pointer of an adapter's type is what a program has that has not made one.
	if isNil(c.Metrics) {
		c.Metrics = nil
	}
	if isNil(c.Events) {
		c.Events = nil
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Sources = slices.Clone(c.Sources)
	c.Reads = slices.Clone(c.Reads)
	return c
}

// validate names every mistake in a config with its defaults set.
func (c Config[T]) validate() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		mistake("Name is required: logs, metrics and readiness are told apart by it")
	}
	switch {
	case c.Retriever == nil && c.Informer == nil:
		mistake("Retriever (or Informer) is required: informer.Retrieve makes one")
	case c.Retriever != nil && c.Informer != nil:
		mistake("Retriever and Informer are both set: set Retriever for a cache of the controller's own, Informer to share one")
	}
	switch {
	case isNil(c.Handler) && isNil(c.Reconciler):
		mistake("Handler (or Reconciler) is required")
	case c.Handler != nil && c.Reconciler != nil:
		mistake("Handler and Reconciler are both set: one controller calls one of them")
	}
	if c.LeaderElector != nil && isNil(c.LeaderElector) {
		mistake("LeaderElector is a nil %T: leave it unset to work without leader election, and check the error of the function that made it", c.LeaderElector)
	}
	for i, read := range c.Reads {
		if isNil(read) {
			mistake("Reads[%d] is nil", i)
		}
	}
	for i, source := range c.Sources {
		if err := validateSource(source); err != nil {
			mistake("Sources[%d] %w", i, err)
		}
	}
	if c.Workers < 0 {
		mistake("Workers is %d: at least one is needed (0 means %d)", c.Workers, DefaultWorkers)
	}
	if c.Timeout < 0 {
		mistake("Timeout is %s: leave it 0 for none", c.Timeout)
	}
	if c.Debounce < 0 {
		mistake("Debounce is %s: leave it 0 for none", c.Debounce)
	}
	if c.GroupLimit < 0 {
		mistake("GroupLimit is %d: leave it 0 for none", c.GroupLimit)
	}
	return errors.Join(errs...)
}

func validateSource(source Source) error {
	if isNil(source) {
		return errors.New("is nil")
	}
	if checked, ok := source.(interface{ Validate() error }); ok {
		if err := checked.Validate(); err != nil {
			return fmt.Errorf("(%T): %w", source, err)
		}
	}
	if name := nameOf(source); name == workqueue.SourceSelf || name == workqueue.SourceLoop {
		return fmt.Errorf("(%T) calls itself %q, which is the name of a source that every controller has", source, name)
	}
	return nil
}

// isNil reports whether v is nil, an adapter (HandlerFunc, ...) of a nil function, or a
// nil pointer.
func isNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Func, reflect.Pointer:
		return value.IsNil()
	default:
		return false
	}
}

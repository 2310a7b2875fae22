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
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// Defaults of Config.
const (
	DefaultWorkers        = 3
	DefaultResyncInterval = 3 * time.Minute
	// DefaultDrainTimeout ends 5 s before the kubelet kills: a Pod's
	// terminationGracePeriodSeconds is 30 unless it is set.
	DefaultDrainTimeout = 25 * time.Second
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
	// Retry says when failed keys are run again. Default: see Retry.
	Retry Retry
	// Timeout is after how long a handler's context is cancelled. Default 0: never.
	Timeout time.Duration
	// DrainTimeout is how long handlers that are under way when Run's context ends may go
	// on before their contexts are cancelled. Keys that wait in the queue are not begun.
	// Default 25 s; negative: handlers are cancelled at once.
	DrainTimeout time.Duration

	// LeaderElector lets the controller work only while it leads; package leader has
	// one. Default nil: it works at once.
	LeaderElector LeaderElector
	// Metrics receives measurements; metrics/prometheus has an adapter. Default nil: none.
	Metrics Recorder
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
	// WaitSynced waits until the informer has listed everything.
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
// of Run, and returns when nothing is missed any more: then no handler is called before. And
// it may have a method Validate() error, which New and AddSource ask for mistakes in how it
// was made.
type Source interface {
	// Run calls enqueue for keys that should be run, until ctx ends. enqueue never
	// blocks; detail may be empty, and becomes the detail of the cause. An error ends
	// the controller.
	Run(ctx context.Context, enqueue func(key kube.Key, detail string)) error
}

// SourceFunc is a function as a Source.
type SourceFunc func(ctx context.Context, enqueue func(key kube.Key, detail string)) error

// Run implements Source.
func (f SourceFunc) Run(ctx context.Context, enqueue func(key kube.Key, detail string)) error {
	return f(ctx, enqueue)
}

// LeaderElector runs work only while this process leads.
type LeaderElector interface {
	// Run calls work when leadership is gained, as often as that happens, until ctx ends.
	//
	// The context that work gets ends with ctx, or when leadership is lost; the latter is
	// told by kube.LeadershipLost and the cause kube.ErrLeadershipLost. Run waits for work
	// to return, and only then gives leadership up or stands again. When work returns
	// while leading, Run gives leadership up and returns work's error.
	//
	// An elector may also have a method Ready() error, which says why it can neither lead
	// nor stand by; Controller.Ready asks it.
	Run(ctx context.Context, work func(ctx context.Context) error) error
}

// Recorder receives a controller's measurements. Its methods are called on the way of
// every event and run, Queued also while the informer announces a change: they must be
// quick, safe for concurrent use, and must not call the controller or its informer.
type Recorder interface {
	informer.Recorder
	// ObserveController is called when a controller begins to run. The Recorder may call
	// stats at any time until stop is called. It must accept several controllers of the
	// same name.
	ObserveController(name string, stats func() Stats) (stop func())
	// Queued is called when a key is put into the queue, also when it merges with one
	// that is there.
	Queued(controller string, cause workqueue.CauseType)
	// Handled is called after each run.
	Handled(controller string, run Handled)
}

// Handled is what a Recorder learns of a run.
type Handled struct {
	Outcome Outcome
	// Attempt is how many runs of the key failed in a row before this one: 0 unless this
	// run was a retry.
	Attempt int
	// Wait is how long the key was due before a worker took it.
	Wait time.Duration
	// Duration is how long the run took.
	Duration time.Duration
}

// withDefaults returns the config with every zero field set to its default.
func (c Config[T]) withDefaults() Config[T] {
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	c.ResyncInterval = cmp.Or(c.ResyncInterval, DefaultResyncInterval)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.Retry = c.Retry.withDefaults()
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
	errs = append(errs, c.Retry.validate())
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

package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Defaults of Config.
const (
	defaultWorkers        = 3
	defaultResyncInterval = 3 * time.Minute
	// defaultDrainTimeout ends 5 s before the kubelet kills the process: the default of a Pod's
	// terminationGracePeriodSeconds is 30.
	defaultDrainTimeout = 25 * time.Second
	// defaultConsistencyTimeout is far above the lag of a healthy watch, which is milliseconds.
	defaultConsistencyTimeout = 10 * time.Second
	defaultStuckAfter         = 5 * time.Minute
)

// Config configures a Controller. Name is required, and Cluster, Retriever or Informer, and exactly one of Handler and
// Reconciler. A controller without a primary kind is a Config[NoObject]. New neither keeps nor changes the caller's
// Config. A field that is zero has the value of SetDefaults, or else its default.
type Config[T kube.Object] struct {
	// Name identifies the controller in logs, metrics and readiness. Only one running controller of a kube.Cluster may
	// have it.
	Name string

	// Cluster has the settings of the program, such as its logger, and without Retriever and Informer also the objects:
	// all of type T, as from informer.Retrieve[T](cluster). Default: that of Retriever or Informer, if it is known.
	Cluster   *kube.Cluster
	Retriever informer.Retriever[T] // lists and watches the objects, for the controller's own cache
	Informer  *informer.Informer[T] // a cache shared with other users; the controller runs it during Run

	// Optional is informer.Config.Optional of the controller's own cache: with it the controller starts, and is ready,
	// while the kind cannot be read. It needs Cluster or Retriever. Default false: the controller waits.
	Optional bool

	Handler    Handler[T] // called with each object
	Reconciler Reconciler // called with each key, also of deleted objects

	// Workers is the maximum number of objects that are handled at the same time. Default 3. A worker without work is a
	// goroutine that waits, so 1,000 are affordable where each object waits for a slow system; then also limit what
	// they use together, for example with Queue.Limiter.
	Workers int
	// ResyncInterval is the time after which an idle object is handled again at low priority, changed or not. An object
	// that waits for a retry is not resynced. Each object has a fixed offset in the interval, so the load is even.
	// Default 3 min; negative: never.
	ResyncInterval time.Duration
	// Timeout cancels the context of a handler that runs for longer. Default 0: never; negative: never, also if
	// SetDefaults has set another default. The same is true of SyncTimeout, Queue.Debounce and Queue.GroupLimit.
	Timeout time.Duration
	// SyncTimeout is the time within which the first lists must arrive: of the controller's informer, of Reads, and of
	// the sources, which must also have started by then. Otherwise Run returns an error with the reasons, as
	// controller-runtime does after 2 min. With LeaderElector it applies to each term. Default 0: Run waits, and Ready
	// and the log name what is missing.
	SyncTimeout time.Duration

	// Predicate selects the changes of T's objects that run the handler; package predicate has the usual ones. A change
	// that it drops has no effect until the next change or resync. Default nil: every change.
	Predicate informer.Predicate
	// Sources enqueue further keys. Controller.AddSource adds more at run time. Default: none.
	Sources []Source
	// Reads are further informers that the handler reads from. The controller runs them, calls no handler before
	// they are synced, and includes them in Ready. They enqueue no keys: a Source does. Default: none.
	Reads []informer.Any
	// Deleted is called with the last known state of a deleted object, before the handler is called for another object
	// of the same name. stale is true if a list showed that the object is gone: the state may not be the last one.
	// It is not called for an object that only left the selection, SetRetriever dropped, or whose kind was removed.
	// If the informer selects by labels or fields, a request (a list of one name) confirms each deletion.
	// Errors are retried like a handler's. Deleted is best effort: it misses deletions while no process runs, and
	// deletions that Predicate drops. Cleanup that must happen needs a finalizer. Default: none.
	Deleted func(ctx context.Context, last T, stale bool) error

	Retry retry.Config // delays and number of retries, by class of the error
	Queue QueueConfig  // debouncing, priorities, fairness
	Runs  RunsConfig   // handlers that do not return, hot loops, own writes, shutdown

	LeaderElector LeaderElector // package leader has one. Default nil: the controller starts at once
	Metrics       Recorder      // metrics/prometheus has one. Default (also a nil pointer): that of the Cluster
	// Events writes an Event for each Problem of an object. Default: the event.Recorder of the Cluster, or none.
	Events EventRecorder

	// RunLogger returns the logger of one run, from one that has the attributes of the controller and of the run, for
	// example with attributes from the key. It is called each time that the run gets a logger. A panic or nil keeps the
	// given one. Default: none.
	RunLogger func(logger *slog.Logger, run RunRecord) *slog.Logger
	// Logger receives failed runs at warning level; panics, terminal errors and exhausted retries at error level;
	// start, end and runs of more than 30 s at info level; every run at debug level. Default: that of the Cluster, or
	// slog.Default() if it is not known, at the time of New.
	Logger *slog.Logger

	mayHelp func(Cause) bool // see schedule
}

// QueueConfig configures the order of a controller's keys. The zero value is the default.
type QueueConfig struct {
	// Debounce delays a key until nothing more has happened to it for this long, at most ten times this long. Default
	// 0: no delay.
	Debounce time.Duration
	// Priority returns the priority of a change of the controller's own objects (Sources set Trigger.Priority). Ready
	// keys of a lower priority wait for those of a higher one; after 30 s they get a share of the workers. Priority is
	// called under the same conditions as Config.Predicate. Default nil: first lists and resyncs are low, everything
	// else is normal.
	Priority func(informer.Change) Priority
	// Group returns the group of a key. Groups take turns, so that a group with many keys does not delay the others
	// beyond its share. Group is called with the queue's lock held: it must be quick and have no side effects. Default:
	// the namespace.
	Group func(key kube.Key) string
	// GroupLimit is the maximum number of keys of one group that are handled at the same time. Default 0: Workers.
	GroupLimit int
	// Limiter limits the runs of the controller, or of several controllers that share it: *rate.Limiter of
	// golang.org/x/time/rate limits runs per second. Ready keys stay in the queue, in their order, while it waits.
	// Idle workers wait for it in advance, so up to Workers runs can follow each other in addition to its burst.
	// Several workers call Wait at the same time. It must return nil when the next run may start, or an error when ctx
	// has ended. An error before the end of ctx, or a panic, lets the run start; the first one of a term is logged.
	// Default: none.
	Limiter interface {
		Wait(ctx context.Context) error
	}
	// EndBackoffIf reports whether a cause ends the backoff of a key; otherwise the cause is merged with the retry. The
	// deletion of the object, and the creation of another one of the same name, always end it. EndBackoffIf is called
	// with locks held: it must be quick and have no side effects. RequeueAfter is not a backoff: an earlier cause runs
	// the key earlier.
	//
	// Default nil: these causes end the backoff: a change of the object itself, unless only the status changed; a timer
	// of the object; and a key from a source that is not a change of an object, such as a channel or a poll. The
	// addition, the deletion and a change of the spec of another object bring the next run forward, once in each
	// backoff: if that run fails too, it is no retry, and the key waits for the rest of the backoff. Changes of their
	// status do not: children report it often.
	EndBackoffIf func(Cause) bool
}

// RunsConfig configures the limits of runs, what follows from a run's own writes, and the end of the process. Own
// writes are those made with the handler's context, through a client of the same kube.Cluster as the informer's. The
// zero value is the default.
type RunsConfig struct {
	// StuckAfter is the time after which a running handler is reported as ProblemStuck, with its goroutine's stack, and
	// another worker takes its place until it returns. Default 5 min; negative: never. After 30 s it is logged.
	StuckAfter time.Duration
	// UnreadyWhenStuck makes Controller.Ready name stuck handlers, so that a readiness probe fails. Default false.
	UnreadyWhenStuck bool
	// MaxPause is the longest time for which a key in a hot loop, which runs again and again without progress, is held
	// back before its next run. It is reported as ProblemHotLoop in any case. Set it if two programs exchange writes on
	// purpose, or if a handler does work outside of the cluster in hundreds of short runs. Default 1 min; negative:
	// keys are never held back.
	MaxPause time.Duration

	// HandleOwnWrites makes the handler run for its own writes. Default false: a change that is exactly what the key's
	// last run wrote does not run the key again. A handler that needs another run returns RequeueAfter(0) instead.
	// Deletions, and changes made by other clients, always run the handler.
	HandleOwnWrites bool
	// ConsistencyTimeout is the maximum time that a key waits until the informers (the controller's own, those in
	// Config.Reads, and those of sources) show what its last run wrote. Workers and other keys do not wait. After the
	// timeout, ProblemUnseenWrite is reported, and the handler runs anyway; but while an informer reports that it
	// cannot watch, the key waits up to 30 times as long. Default 10 s; negative: keys do not wait, and each write runs
	// the handler.
	ConsistencyTimeout time.Duration

	// DrainTimeout is the time that running handlers have to finish when the context of Controller.Run has ended,
	// before their contexts are cancelled. Run returns at the latest 3 s after it, with an error that names the
	// handlers that have not returned. Default 25 s; negative: they are cancelled at once.
	DrainTimeout time.Duration
	// DrainQueue makes workers handle the keys that are ready when the context ends, within DrainTimeout, including
	// keys that wait until an informer shows what their last run wrote. Default false: the next start handles every
	// object.
	DrainQueue bool

	// StateDir is an existing directory for files about the keys in work, one controller's files beside another's. If
	// the process ends without a shutdown (out of memory, a fatal error, SIGKILL), Run reads them at the next start,
	// reports the keys that were in work as ProblemInterrupted, and handles them after all others, one at a time: a key
	// whose handling ends the process does not prevent the handling of the others. Run fails if it cannot write there,
	// or if another Run uses the files. Keys of more than 500 bytes, which no object has, are not recorded. The files
	// need to survive the process, not the machine: an emptyDir survives the restart of a container, but not the
	// replacement of a Pod. Default "": off.
	StateDir string
	// PanicsEndProcess lets a panic of the Handler, the Reconciler or Deleted end the process, with the stack of the
	// panic, for debugging. Default false: a panic is an error of its key.
	PanicsEndProcess bool
}

// LeaderElector runs work only while this process leads.
type LeaderElector interface {
	// Run must call work each time that leadership is gained, until ctx ends.
	//
	// The context of work must end with ctx, and when leadership is lost; then its cause must be
	// kube.ErrLeadershipLost. Run must wait for work to return before it gives leadership up or stands for election
	// again. When work returns while this process leads, Run must give leadership up and return work's error.
	Run(ctx context.Context, work func(ctx context.Context) error) error
	// Ready returns why this process can neither lead nor stand by, or nil. Controller.Ready calls it.
	Ready() error
}

// connected returns the config with the defaults of Cluster, Logger and Metrics, and the controller's informer.
func (c Config[T]) connected(g *usercode.Guard, p primary[T]) (_ Config[T], own *informer.Informer[T], err error) {
	if c.Cluster != nil {
		c.Logger = cmp.Or(c.Logger, c.Cluster.Logger())
	}
	retriever := c.Retriever
	if retriever == nil && c.Cluster != nil {
		retriever = p.retrieve(c.Cluster)
	}
	switch {
	case c.Informer != nil:
		own = c.Informer
	case retriever != nil:
		own, err = informer.Shared(informer.Config[T]{
			Name: c.Name, Retriever: retriever, Optional: c.Optional, Metrics: c.Metrics, Logger: c.Logger,
		})
	}
	switch {
	case own == nil:
	case c.Cluster == nil:
		c.Cluster = cache.Of(own).Cluster()
	default:
		if server, _ := kubeconfig.Server(c.Cluster.RESTConfig()); !cache.Of(own).ReadsFrom(server) {
			err = fmt.Errorf("the objects are read from another API server than that of Cluster, %s", server)
		}
	}
	c.Logger = cmp.Or(c.Logger, c.Cluster.Logger())
	if recorder := apiobject.Metrics[Recorder](apiobject.ObserversOf(c.Cluster)); c.Metrics == nil && recorder != nil {
		c.Metrics = guardedRecorder{recorder, g}
	}
	return c, own, err
}

// withDefaults returns the config with every zero field set to its default.
func (c Config[T]) withDefaults(p primary[T]) Config[T] {
	c.Workers = cmp.Or(c.Workers, defaultWorkers)
	c.ResyncInterval = cmp.Or(c.ResyncInterval, defaultResyncInterval)
	c.Runs.DrainTimeout = cmp.Or(c.Runs.DrainTimeout, defaultDrainTimeout)
	c.Runs.ConsistencyTimeout = cmp.Or(c.Runs.ConsistencyTimeout, defaultConsistencyTimeout)
	c.Runs.StuckAfter = cmp.Or(c.Runs.StuckAfter, defaultStuckAfter)
	c.Runs.MaxPause = cmp.Or(c.Runs.MaxPause, detect.MaxPause)
	if c.Queue.Group == nil {
		c.Queue.Group = func(key kube.Key) string { return key.Namespace }
	}
	if c.Queue.EndBackoffIf == nil {
		c.Queue.EndBackoffIf, c.mayHelp = p.endsBackoff, mayHelp
	}
	c.Queue.EndBackoffIf = orOtherObject(c.Queue.EndBackoffIf)
	c.Sources = slices.Clone(c.Sources)
	c.Reads = slices.Clone(c.Reads)
	return c
}

// validate reports every mistake in a config with its defaults. given is the config without them.
func (c Config[T]) validate(given Config[T], p primary[T]) error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Name == "", "Name is required: it identifies the controller in logs, metrics and readiness")
	p.validate(given, &mistakes)
	mistakes.AddIf(c.LeaderElector != nil && usercode.IsNil(c.LeaderElector), "LeaderElector is a nil %T: leave it "+
		"unset to work without leader election, and check the error of the function that made it", c.LeaderElector)
	for i, read := range c.Reads {
		mistakes.AddIf(usercode.IsNil(read), "Reads[%d] is nil", i)
	}
	c.validateValues(&mistakes)
	return mistakes.Err()
}

// validateValues reports the mistakes in the fields that may have defaults.
func (c Config[T]) validateValues(mistakes *usercode.Mistakes) {
	mistakes.AddIf(c.Workers < 0, "Workers is %d: at least one is needed (0 means %d)", c.Workers, defaultWorkers)
}

// validateObjects reports the mistakes in the fields that determine the controller's objects and its function.
func (c Config[T]) validateObjects(mistakes *usercode.Mistakes) {
	switch {
	case c.Cluster == nil && c.Retriever == nil && c.Informer == nil:
		mistakes.Addf("Cluster (or Retriever, or Informer) is required: kube.Connect returns a Cluster")
	case c.Retriever != nil && c.Informer != nil:
		mistakes.Addf("Retriever and Informer are set: set Retriever for a cache of the controller's own, or " +
			"Informer to share one")
	}
	mistakes.AddIf(c.Informer != nil && c.Optional, "Optional and Informer are set: set informer.Config.Optional of "+
		"the informer instead")
	switch {
	case usercode.IsNil(c.Handler) && usercode.IsNil(c.Reconciler):
		mistakes.Addf("Handler (or Reconciler) is required")
	case c.Handler != nil && c.Reconciler != nil:
		mistakes.Addf("Handler and Reconciler are both set: one controller calls one of them")
	}
}

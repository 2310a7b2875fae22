package controller

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/controller/internal/interruptions"
	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// RunRecord is one call of a handler for one key. While the run lasts, RunFrom returns it to the handler. Afterwards,
// Controller.RecentRuns and Controller.Explain return it.
type RunRecord struct {
	// Controller is the controller's name. ID is the number of the run; the controller's first run has ID 1.
	Controller string
	ID         uint64
	// Key is the object's key. UID and Generation are the object's when it was read. They are zero for an object that
	// does not exist, and for a Reconciler, which reads the object itself.
	Key        kube.Key
	UID        types.UID
	Generation int64
	// Causes are the reasons for the run.
	Causes Causes
	// Attempt is the number of runs of this key that failed in a row before this one. AttemptClass is the class of
	// their last error. Both are zero unless this run is a retry.
	Attempt      int
	AttemptClass retry.Class
	// Wait is how long the key was ready before this run. Held is the part of it for which the key was held back:
	// because an informer did not show yet what the previous run wrote, because of a hot loop, or because an earlier
	// process was interrupted while it handled the key.
	Wait time.Duration
	Held time.Duration
	// Started is the time when the run started.
	Started time.Time
	// Staleness is the time since the informer of the controller's objects last received something from the API
	// server; for NoObject the longest such time of all informers. The objects that the handler reads may be stale by
	// that time.
	Staleness time.Duration

	// The following fields grow during the run.

	// Calls is the number of requests that the handler made. A request is counted only if it was made with the
	// handler's context and through a client of the same kube.Cluster: its HTTPClient, or a config that is its
	// RESTConfig.
	Calls    int
	callTime time.Duration // their total duration
	// Writes is the number of the handler's writes that succeeded and changed something. The texts of the record, in
	// Controller.Explain and Debug, list all its write requests, at most 16.
	Writes        int
	writes        []write // only appended to
	writesDropped int     // further ones
	// TraceID is the trace that the run belongs to, if middleware.Trace is used.
	TraceID string

	// The following fields are set when the run has ended.

	// Decode is the time for reading the object from the cache. Duration is the time of the whole run.
	Decode   time.Duration
	Duration time.Duration
	Outcome  Outcome
	// Class is the class of Error. Both are empty unless the run failed.
	Class retry.Class
	Error string
	// NextRun is the time of the next run, if it is known. Zero: NextReason describes what causes the next run.
	NextRun    time.Time
	NextReason string
}

// nextRun is what follows a run.
type nextRun struct {
	at  time.Time // zero: why describes what causes it
	why string
}

// record contains a RunRecord. It must not reference the loop, because it may outlive the loop.
type record struct {
	mu  sync.Mutex
	run RunRecord // guarded by mu
}

// running is a run in progress. Several goroutines of a handler may write to it.
type running struct {
	*record
	logger    *slog.Logger // includes the controller's name
	timers    *timers
	observers observerList
	own       ownwrites.Run // of ownWrites: records its writes
	stuck     atomic.Bool   // reported as stuck
	slow      atomic.Bool   // logged as slow
	// panicking is true while a panic ends the process. Only for the worker.
	panicking bool
	// derive is Config.RunLogger. May be nil.
	derive func(*slog.Logger, RunRecord) *slog.Logger
	slot   *interruptions.Slot // of interrupted; only for the worker
	ending *end                // the end for which Config.Deleted failed; only for the worker
	// uid and generation identify the object that the run is about: as it was read, or as the cache showed it when a
	// Reconciler was called. Only for the worker. An empty uid: there was no object.
	uid        types.UID
	generation int64
	// owner is the object that timers and writes of the handler belong to, guarded by mu: uid and generation, or empty
	// in Config.Deleted.
	owner detect.Owner
}

// identify sets the uid and generation of r to those of the object that own, the informer, shows under key.
func (r *running) identify(own objects, key kube.Key) {
	r.uid, r.generation = "", 0
	if kept, found := cache.Of(own).Encoded(key); found {
		r.uid, r.generation = kept.UID, kept.Generation
	}
}

// snapshot returns a copy of the run's current state.
func (r *record) snapshot() RunRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run
}

// log returns a logger with the controller, the key and the run's ID. It is created on demand, because few runs log
// anything.
func (r *running) log() *slog.Logger {
	logger := r.logger.With(slog.Group("run", "key", r.run.Key.String(), "id", r.run.ID))
	r.mu.Lock()
	trace := r.run.TraceID
	r.mu.Unlock()
	if trace != "" {
		logger = logger.With("trace_id", trace) // OpenTelemetry's name for it
	}
	if r.derive != nil {
		return cmp.Or(r.derive(logger, r.snapshot()), logger)
	}
	return logger
}

// recoverPanic converts a panic into a *usercode.HandlerPanicError in err. If it must end the process, recoverPanic
// marks the run, so that nothing follows it, and panics again: the process prints the stack of the first panic, because
// its frames are still there. It must be deferred directly.
func (r *running) recoverPanic(err *error, endsProcess bool) {
	value := recover()
	switch {
	case value == nil:
	case endsProcess:
		r.panicking = true
		panic(value)
	default:
		*err = &usercode.HandlerPanicError{Value: value, Stack: debug.Stack()}
	}
}

func runningFrom(ctx context.Context) *running {
	r, _ := observers.RunningFrom(ctx).(*running)
	return r
}

// SetTraceID implements observers.Running. The record of the run, its log lines and exemplars have the ID.
func (r *running) SetTraceID(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.TraceID = id
}

// RunFrom returns the current state of the run that ctx, a handler's context, belongs to. ok is false outside a
// handler.
func RunFrom(ctx context.Context) (run RunRecord, ok bool) {
	if r := runningFrom(ctx); r != nil {
		return r.snapshot(), true
	}
	return RunRecord{}, false
}

// LoggerFrom returns a logger with the controller and, as a group "run", the key and the run's ID. Outside a handler it
// returns the logger of the manager that runs the Runnable, or of the webhook server, and elsewhere slog.Default().
func LoggerFrom(ctx context.Context) *slog.Logger {
	if r := runningFrom(ctx); r != nil {
		return r.log()
	}
	return observers.Logger(ctx)
}

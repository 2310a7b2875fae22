package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Run is one call of a handler for one key: while it lasts, what the handler may know about
// being called (RunFrom); afterwards, the record of it (Controller.RecentRuns, Controller.Explain).
type RunRecord struct {
	// Controller is the controller's name, and ID counts its runs from 1.
	Controller string
	ID         uint64
	// Key is the object's key. UID and Generation are the object's when it was read; zero for
	// an object that was gone, and for a Reconciler, which reads it itself.
	Key        kube.Key
	UID        types.UID
	Generation int64
	// Causes is why the handler runs.
	Causes Causes
	// Attempt is how many runs of this key failed in a row before this one, and AttemptClass
	// the class of their last error. Zero unless this is a retry.
	Attempt      int
	AttemptClass retry.Class
	// Wait is how long the key was due before this run, and Held for how much of that it was kept
	// back, because an informer did not yet show what the run before had written, or because of
	// a hot loop.
	Wait time.Duration
	Held time.Duration
	// Started is when the run began.
	Started time.Time
	// Staleness is how long ago the informer of the controller's objects had last heard from
	// the API server: how old what the handler reads may be.
	Staleness time.Duration

	// The following grow while the run lasts.

	// Calls is how many requests the handler made, and CallTime how long they took in all.
	// Only those are known that were made with the handler's context, through a client of the
	// same kube.Cluster: its HTTPClient, or a config that is its RESTConfig.
	Calls    int
	CallTime time.Duration
	// Writes are those of them that were to change something, at most maxWrites; the others are
	// counted in WritesDropped.
	Writes        []Write
	WritesDropped int
	writesDone    int // also of those that were dropped
	// TraceID is the trace that the run belongs to, when middleware.Trace is used.
	TraceID string

	// The following are known when the run has ended.

	// Decode is how long reading the object from the cache took, Duration the whole run.
	Decode   time.Duration
	Duration time.Duration
	Outcome  Outcome
	// Class is the class of Error. Both are empty unless the run has failed.
	Class retry.Class
	Error string
	// NextRun is the time of the next run, as far as it is known. Zero: NextReason says what leads to it.
	NextRun    time.Time
	NextReason string
}

// nextRun is what follows a run.
type nextRun struct {
	at  time.Time // zero: why says what leads to it
	why string
}

// maxWrites is how many writes a Run keeps.
const maxWrites = 16

// WriteOutcome is how a write ended.
type WriteOutcome string

// The outcomes of writes.
const (
	// WriteDone: the API server has done it.
	WriteDone WriteOutcome = "done"
	// WriteNoChange: the API server has accepted it, and nothing has changed.
	WriteNoChange WriteOutcome = "no change"
	// WriteDryRun: the API server would do it.
	WriteDryRun WriteOutcome = "dry run"
	// WriteRejected: the API server has refused it; see Status.
	WriteRejected WriteOutcome = "rejected"
	// WriteUnknown: no answer came. It may have been done.
	WriteUnknown WriteOutcome = "unknown"
)

// Write is one write of a run.
type Write struct {
	// Verb is create, update, patch, delete or deletecollection; Kind the kind, or the
	// resource where the kind is not known; Subresource is empty for the object itself.
	Verb        string
	Kind        string
	Subresource string
	Key         kube.Key
	Outcome     WriteOutcome
	// Status is the HTTP status of the answer. 0: none came.
	Status int
	// ResourceVersion is the object's after the write, where the answer tells.
	ResourceVersion string
	Duration        time.Duration
}

// String returns the write in a line:
// "patch Deployment/status shop/web: done (resource version 4711)".
func (w Write) String() string {
	what := w.Kind
	if w.Subresource != "" {
		what += "/" + w.Subresource
	}
	switch {
	case w.Key.Name != "":
		what += " " + w.Key.String()
	case w.Key.Namespace != "": // of a create that was refused, the answer says no name
		what += " in " + w.Key.Namespace
	}
	s := fmt.Sprintf("%s %s: %s", w.Verb, what, w.Outcome)
	switch {
	case w.Outcome == WriteRejected:
		s += fmt.Sprintf(" (%s)", strings.TrimSpace(fmt.Sprintf("%d %s", w.Status, http.StatusText(w.Status))))
	case w.ResourceVersion != "":
		s += fmt.Sprintf(" (resource version %s)", w.ResourceVersion)
	}
	return s
}

// record is what is kept of a Run. It holds on to nothing of the loop, which it may outlive.
type record struct {
	mu  sync.Mutex
	run RunRecord // guarded by mu
}

// running is a Run under way, which several goroutines of a handler may write to.
type running struct {
	*record
	logger   *slog.Logger // carries the controller
	timers   *timers
	writer   writer
	cut      *wire.Cut   // of the objects in answers
	stuck    atomic.Bool // reported as stuck
	finished atomic.Bool // the handler has returned; set with consistency.mu held
	ending   *end        // for which Config.Deleted has failed; the worker's
	// uid and generation are those of the object that the run is about, as they were when it was
	// read, or when a Reconciler was called; the worker's. An empty uid: there was none.
	uid        types.UID
	generation int64
	// timersOf is the uid of the object whose timers the handler sets, guarded by mu: uid, but empty in
	// Config.Deleted.
	timersOf types.UID
}

// snapshot returns the run as it is now.
func (r *record) snapshot() RunRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.run
	run.Writes = slices.Clone(run.Writes)
	return run
}

// log returns a logger that carries the controller, the key and the run's number. It is made
// when it is asked for: few runs log anything.
func (r *running) log() *slog.Logger {
	logger := r.logger.With(slog.Group("run", "key", r.run.Key.String(), "id", r.run.ID))
	r.mu.Lock()
	trace := r.run.TraceID
	r.mu.Unlock()
	if trace != "" {
		logger = logger.With("trace_id", trace) // as OpenTelemetry calls it
	}
	return logger
}

type runKey struct{}

func runningFrom(ctx context.Context) *running {
	r, _ := ctx.Value(runKey{}).(*running)
	return r
}

// RunFrom returns the run that ctx, a handler's context, belongs to, as it is now. Outside a
// handler ok is false.
func RunFrom(ctx context.Context) (run RunRecord, ok bool) {
	if r := runningFrom(ctx); r != nil {
		return r.snapshot(), true
	}
	return RunRecord{}, false
}

// LoggerFrom returns a logger that carries the controller and, as a group "run", the key and
// the run's number. Outside a handler it is slog.Default().
func LoggerFrom(ctx context.Context) *slog.Logger {
	if r := runningFrom(ctx); r != nil {
		return r.log()
	}
	return slog.Default()
}

// SetTraceID notes the trace that the run of ctx belongs to, for its record, its log lines
// and exemplars. middleware.Trace calls it.
func SetTraceID(ctx context.Context, id string) {
	if r := runningFrom(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.run.TraceID = id
	}
}

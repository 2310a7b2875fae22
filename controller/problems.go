package controller

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ProblemType is a type of problem that would otherwise be hard to detect. The set is small and fixed, so it may be
// used as a metric label.
type ProblemType string

// The problem types.
const (
	// ProblemHotLoop: a key runs again and again without progress. See RunsConfig.MaxPause.
	ProblemHotLoop ProblemType = "hot-loop"
	// ProblemStuck: a handler has been running for longer than Config.Runs.StuckAfter.
	ProblemStuck ProblemType = "stuck"
	// ProblemStalled: the last retry of a key failed, and no further retry follows.
	ProblemStalled ProblemType = "stalled"
	// ProblemFailing: a key has failed for a long time without a success.
	ProblemFailing ProblemType = "failing"
	// ProblemQueueGrowing: keys are added faster than the workers handle them.
	ProblemQueueGrowing ProblemType = "queue-growing"
	// ProblemInformer: an informer cannot list or watch, or receives nothing. The informer logs and counts this
	// problem itself: see informer.Health.
	ProblemInformer ProblemType = "informer"
	// ProblemSource: a source reports that it cannot work, for example that it cannot poll an external service. It is
	// the source's own problem: the controller does not count it.
	ProblemSource ProblemType = "source"
	// ProblemUnseenWrite: an informer did not show in time what a run wrote.
	ProblemUnseenWrite ProblemType = "unseen-write"
	// ProblemInterrupted: an earlier process ended without a shutdown while it handled the key. See
	// Config.Runs.StateDir.
	ProblemInterrupted ProblemType = "interrupted"
)

// problemTypes returns every ProblemType of problems: all except ProblemInformer and ProblemSource.
func problemTypes() []ProblemType {
	return []ProblemType{
		ProblemHotLoop, ProblemStuck, ProblemStalled, ProblemFailing, ProblemQueueGrowing, ProblemUnseenWrite,
		ProblemInterrupted,
	}
}

// Problem is a problem of a controller or of one key. Each is one log line and one count in metrics, and one Event if
// it has an object.
type Problem struct {
	Type ProblemType
	// Key is the affected key. Empty: the problem affects the whole controller.
	Key kube.Key
	// Since is the time when it started.
	Since time.Time
	// Message describes the problem, and the remedy if that is known.
	Message string
	// Details are more facts. Their names are few and fixed: object, managers, fields (which change back and forth),
	// causes, stack.
	Details []slog.Attr
}

// EventRecorder writes Events about objects; event.Recorder is one. Event must not block.
type EventRecorder interface {
	Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
}

// maxProblems is the number of problems of keys that are tracked at a time. Further ones are only reported. Stuck
// handlers are always tracked: there are at most as many as workers.
const maxProblems = 1024

// problems are the active problems. Each is reported once, when it starts. It is an observer: problems of a key end
// with its object.
type problems struct {
	ignore

	mu     sync.Mutex
	report func(ctx context.Context, t Problem, logged bool) // guarded by mu; set by the current term
	open   map[problemID]Problem                             // guarded by mu
	n      atomic.Int64                                      // number of open problems; most runs need only this
}

type problemID struct {
	kind ProblemType
	key  kube.Key
}

// begin reports a problem, unless it is active already. logged is true if the log contains it already.
func (t *problems) begin(ctx context.Context, problem Problem, logged bool) {
	id := problemID{problem.Type, problem.Key}
	t.mu.Lock()
	_, known := t.open[id]
	// Problems of the whole controller and stuck handlers are few, and readiness depends on them.
	few := problem.Key == kube.Key{} || problem.Type == ProblemStuck
	if !known && (few || len(t.open) < maxProblems) {
		t.open[id] = problem
		t.n.Store(int64(len(t.open)))
	}
	report := t.report
	t.mu.Unlock()
	if !known {
		report(ctx, problem, logged)
	}
}

// update replaces the message of an active problem.
func (t *problems) update(kind ProblemType, key kube.Key, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if problem, lasts := t.open[problemID{kind, key}]; lasts {
		problem.Message = message
		t.open[problemID{kind, key}] = problem
	}
}

// endOf ends the problems of key of these types, or of all types if none is given.
func (t *problems) endOf(key kube.Key, types ...ProblemType) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(types) == 0 {
		types = problemTypes()
	}
	for _, kind := range types {
		delete(t.open, problemID{kind, key})
	}
	t.n.Store(int64(len(t.open)))
}

func (t *problems) keepsFailing(ctx context.Context, p Problem, logged bool) { t.begin(ctx, p, logged) }

func (t *problems) failuresEnded(key kube.Key) {
	t.endOf(key, ProblemFailing, ProblemStalled, ProblemUnseenWrite)
}

// ended ends all problems of a key without an object.
func (t *problems) ended(_ context.Context, r *running) {
	if r.run.Outcome == OutcomeGone {
		t.endOf(r.run.Key)
	}
}

// objectEnded ends the problems that belong to the object of a key.
func (t *problems) objectEnded(key kube.Key, _ bool) {
	t.endOf(key, ProblemHotLoop, ProblemUnseenWrite)
}

// all returns the active problems, oldest first.
func (t *problems) all() []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.open), func(a, b Problem) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(string(a.Type), string(b.Type)),
			strings.Compare(a.Key.String(), b.Key.String()))
	})
}

// counts returns the number of active problems of each type.
func (t *problems) counts() map[ProblemType]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		return nil
	}
	counts := map[ProblemType]int{}
	for id := range t.open {
		counts[id.kind]++
	}
	return counts
}

// reportProblem logs and counts a problem, and writes an Event about its object.
func (l *loop[T]) reportProblem(ctx context.Context, t Problem, logged bool) {
	if l.config.Metrics != nil {
		l.config.Metrics.ProblemDetected(l.config.Name, t.Type)
	}
	if !logged {
		attrs := []any{"problem", string(t.Type), "message", t.Message, "since", t.Since}
		if t.Key != (kube.Key{}) {
			attrs = append(attrs, slog.Group("run", "key", t.Key.String()))
		}
		for _, d := range t.Details {
			attrs = append(attrs, d)
		}
		l.logger.WarnContext(ctx, t.Type.event(), attrs...) //nolint:sloglint // one constant for each type
	}
	events := apiobject.Events(l.config.Events, apiobject.ObserversOf(l.config.Cluster))
	if events == nil || t.Key == (kube.Key{}) {
		return
	}
	if object, found := cache.Of(l.own).Encoded(t.Key); found && l.own.Kind().Kind != "" {
		version, kind := l.own.Kind().ToAPIVersionAndKind()
		events.Event(corev1.ObjectReference{
			APIVersion: version, Kind: kind, Namespace: t.Key.Namespace, Name: t.Key.Name,
			UID: object.UID, ResourceVersion: object.ResourceVersion,
		}, corev1.EventTypeWarning, t.Type.eventReason(), "Handle", t.Message)
	}
}

// event returns the log message for the start of a problem of the type.
func (t ProblemType) event() string {
	switch t {
	case ProblemHotLoop:
		return "key is in a hot loop"
	case ProblemStuck:
		return "handler does not return"
	case ProblemFailing:
		return "handler keeps failing"
	case ProblemQueueGrowing:
		return "queue keeps growing"
	case ProblemUnseenWrite:
		return "informer does not show a write"
	case ProblemInterrupted:
		return "process ended while it handled the key"
	}
	return "problem detected: " + string(t)
}

// eventReason returns the type as an Event's reason, in CamelCase.
func (t ProblemType) eventReason() string {
	var reason strings.Builder
	for word := range strings.SplitSeq(string(t), "-") {
		reason.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return reason.String()
}

// begun sets the report function of the term that starts.
func (t *problems) begun(report func(ctx context.Context, t Problem, logged bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = report
}

// clear ends all problems at the end of a term: they are not kept while the process stands by.
func (t *problems) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = func(context.Context, Problem, bool) {}
	clear(t.open)
	t.n.Store(0)
}

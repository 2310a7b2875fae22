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

	"github.com/evenkeel-go/evenkeel/kube"
)

// ProblemType is a kind of problem that would otherwise be silent. The set is small and fixed,
// so that it can be a metric's label.
type ProblemType string

// The types of problem.
const (
	// ProblemHotLoop: a key is handled and writes again and again, and gets nowhere.
	ProblemHotLoop ProblemType = "hot-loop"
	// ProblemStuck: a handler has been running for longer than Config.Stuck.After.
	ProblemStuck ProblemType = "stuck"
	// ProblemStalled: a key was given up after its last retry.
	ProblemStalled ProblemType = "stalled"
	// ProblemFailing: a key has failed for long without a success.
	ProblemFailing ProblemType = "failing"
	// ProblemQueueGrowing: more keys come than workers handle.
	ProblemQueueGrowing ProblemType = "queue-growing"
	// ProblemInformer: an informer cannot list or watch, or is silent. It is the informer's own
	// problem, which has logged and counted it: see informer.Health.
	ProblemInformer ProblemType = "informer"
	// ProblemSource: a source says that it cannot do its work: a poll of something outside, for
	// instance. It is the source's own, as ProblemInformer is the informer's.
	ProblemSource ProblemType = "source"
	// ProblemUnseenWrite: an informer has not shown in time what a run wrote.
	ProblemUnseenWrite ProblemType = "unseen-write"
)

// ProblemTypes lists every ProblemType that a controller counts, which is all but
// ProblemInformer and ProblemSource, for whoever wants to show zeros.
func ProblemTypes() []ProblemType {
	return []ProblemType{
		ProblemHotLoop, ProblemStuck, ProblemStalled, ProblemFailing, ProblemQueueGrowing, ProblemUnseenWrite,
	}
}

// Problem is an problem: one log line, one count in metrics, one Event where an
// object is concerned.
type Problem struct {
	Type ProblemType
	// Key is the key concerned; empty for problem of the controller as a whole.
	Key kube.Key
	// Since is when it began.
	Since time.Time
	// Message says what is wrong, and what to do where that is known.
	Message string
	// Details say more: the fields that flip, the managers that write them, a stack.
	Details []slog.Attr
}

// EventRecorder writes Events about objects; event.Recorder is one. Event must not block.
type EventRecorder interface {
	Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
}

// maxProblems is how many episodes of keys are kept at the same time; the others are only
// reported. Stuck handlers are kept in any case: there are no more of them than workers.
const maxProblems = 1024

// problems are the episodes that last. Each is reported once: when it begins.
type problems struct {
	mu     sync.Mutex
	report func(ctx context.Context, t Problem, logged bool) // guarded by mu; the present term's
	open   map[problemID]Problem                             // guarded by mu
	n      atomic.Int64                                      // how many are open: most runs need to know no more
}

type problemID struct {
	kind ProblemType
	key  kube.Key
}

// begin reports an episode, unless it lasts already. logged says that the log has it.
func (t *problems) begin(ctx context.Context, problem Problem, logged bool) {
	id := problemID{problem.Type, problem.Key}
	t.mu.Lock()
	_, known := t.open[id]
	// Of the controller as a whole, and of stuck handlers, there are few, and readiness asks for them.
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

// update replaces the message of an episode that lasts.
func (t *problems) update(kind ProblemType, key kube.Key, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if problem, lasts := t.open[problemID{kind, key}]; lasts {
		problem.Message = message
		t.open[problemID{kind, key}] = problem
	}
}

// endOf ends the episodes of key of these types; of all types when none is named.
func (t *problems) endOf(key kube.Key, types ...ProblemType) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		return
	}
	if len(types) == 0 {
		types = ProblemTypes()
	}
	for _, kind := range types {
		delete(t.open, problemID{kind, key})
	}
	t.n.Store(int64(len(t.open)))
}

// all returns the episodes that last, oldest first.
func (t *problems) all() []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.open), func(a, b Problem) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Key.String(), b.Key.String()))
	})
}

// counts returns how many episodes of each type last.
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

// reportProblem logs and counts an problem, and writes an Event about its object.
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
		l.logger.WarnContext(ctx, "problem", attrs...)
	}
	if l.config.Events == nil || t.Key == (kube.Key{}) {
		return
	}
	if object, found := l.informer.Untyped().Encoded(t.Key); found && l.kind.Kind != "" {
		version, kind := l.informer.Kind().ToAPIVersionAndKind()
		l.config.Events.Event(corev1.ObjectReference{
			APIVersion: version, Kind: kind, Namespace: t.Key.Namespace, Name: t.Key.Name,
			UID: object.UID, ResourceVersion: object.ResourceVersion,
		}, corev1.EventTypeWarning, t.Type.eventReason(), "Handle", t.Message)
	}
}

// eventReason returns the type as an Event's reason: in CamelCase.
func (t ProblemType) eventReason() string {
	var reason strings.Builder
	for word := range strings.SplitSeq(string(t), "-") {
		reason.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return reason.String()
}

// begun says who reports in the term that begins.
func (t *problems) begun(report func(ctx context.Context, t Problem, logged bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = report
}

// clear ends all episodes: a term has ended. What it remembers is not kept while the process stands by.
func (t *problems) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = func(context.Context, Problem, bool) {}
	clear(t.open)
	t.n.Store(0)
}

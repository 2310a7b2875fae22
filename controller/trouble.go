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

// TroubleType is a kind of trouble that would otherwise be silent. The set is small and fixed,
// so that it can be a metric's label.
type TroubleType string

// The types of trouble.
const (
	// TroubleHotLoop: a key is handled and writes again and again, and gets nowhere.
	TroubleHotLoop TroubleType = "hot-loop"
	// TroubleStuck: a handler has been running for longer than Config.Stuck.After.
	TroubleStuck TroubleType = "stuck"
	// TroubleStalled: a key was given up after its last retry.
	TroubleStalled TroubleType = "stalled"
	// TroubleFailing: a key has failed for long without a success.
	TroubleFailing TroubleType = "failing"
	// TroubleQueueGrowing: more keys come than workers handle.
	TroubleQueueGrowing TroubleType = "queue-growing"
	// TroubleInformer: an informer cannot list or watch, or is silent. It is the informer's own
	// trouble, which has logged and counted it: see informer.Health.
	TroubleInformer TroubleType = "informer"
	// TroubleSource: a source says that it cannot do its work: a poll of something outside, for
	// instance. It is the source's own, as TroubleInformer is the informer's.
	TroubleSource TroubleType = "source"
	// TroubleUnseenWrite: an informer has not shown in time what a run wrote.
	TroubleUnseenWrite TroubleType = "unseen-write"
)

// TroubleTypes lists every TroubleType that a controller counts, which is all but
// TroubleInformer and TroubleSource, for whoever wants to show zeros.
func TroubleTypes() []TroubleType {
	return []TroubleType{
		TroubleHotLoop, TroubleStuck, TroubleStalled, TroubleFailing, TroubleQueueGrowing, TroubleUnseenWrite,
	}
}

// Trouble is an episode of trouble: one log line, one count in metrics, one Event where an
// object is concerned.
type Trouble struct {
	Type TroubleType
	// Key is the key concerned; empty for trouble of the controller as a whole.
	Key kube.Key
	// Since is when it began.
	Since time.Time
	// Message says what is wrong, and what to do where that is known.
	Message string
	// Details say more: the fields that flip, the managers that write them, a stack.
	Details []Detail
}

// Detail is one more thing to know about a Trouble.
type Detail struct{ Name, Value string }

// EventRecorder writes Events about objects; event.Recorder is one. Event must not block.
type EventRecorder interface {
	Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
}

// maxTroubles is how many episodes of keys are kept at the same time; the others are only
// reported. Stuck handlers are kept in any case: there are no more of them than workers.
const maxTroubles = 1024

// troubles are the episodes that last. Each is reported once: when it begins.
type troubles struct {
	mu     sync.Mutex
	report func(ctx context.Context, t Trouble, logged bool) // guarded by mu; the present term's
	open   map[troubleID]Trouble                             // guarded by mu
	n      atomic.Int64                                      // how many are open: most runs need to know no more
}

type troubleID struct {
	kind TroubleType
	key  kube.Key
}

// begin reports an episode, unless it lasts already. logged says that the log has it.
func (t *troubles) begin(ctx context.Context, trouble Trouble, logged bool) {
	id := troubleID{trouble.Type, trouble.Key}
	t.mu.Lock()
	_, known := t.open[id]
	// Of the controller as a whole, and of stuck handlers, there are few, and readiness asks for them.
	few := trouble.Key == kube.Key{} || trouble.Type == TroubleStuck
	if !known && (few || len(t.open) < maxTroubles) {
		t.open[id] = trouble
		t.n.Store(int64(len(t.open)))
	}
	report := t.report
	t.mu.Unlock()
	if !known {
		report(ctx, trouble, logged)
	}
}

// update replaces the message of an episode that lasts.
func (t *troubles) update(kind TroubleType, key kube.Key, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if trouble, lasts := t.open[troubleID{kind, key}]; lasts {
		trouble.Message = message
		t.open[troubleID{kind, key}] = trouble
	}
}

// endOf ends the episodes of key of these types; of all types when none is named.
func (t *troubles) endOf(key kube.Key, types ...TroubleType) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		return
	}
	if len(types) == 0 {
		types = TroubleTypes()
	}
	for _, kind := range types {
		delete(t.open, troubleID{kind, key})
	}
	t.n.Store(int64(len(t.open)))
}

// all returns the episodes that last, oldest first.
func (t *troubles) all() []Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.open), func(a, b Trouble) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Key.String(), b.Key.String()))
	})
}

// counts returns how many episodes of each type last.
func (t *troubles) counts() map[TroubleType]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		return nil
	}
	counts := map[TroubleType]int{}
	for id := range t.open {
		counts[id.kind]++
	}
	return counts
}

// reportTrouble logs and counts an episode of trouble, and writes an Event about its object.
func (l *loop[T]) reportTrouble(ctx context.Context, t Trouble, logged bool) {
	if l.config.Metrics != nil {
		l.config.Metrics.Troubled(l.config.Name, t.Type)
	}
	if !logged {
		attrs := []any{"trouble", string(t.Type), "message", t.Message, "since", t.Since}
		if t.Key != (kube.Key{}) {
			attrs = append(attrs, slog.Group("run", "key", t.Key.String()))
		}
		for _, d := range t.Details {
			attrs = append(attrs, d.Name, d.Value)
		}
		l.logger.WarnContext(ctx, "trouble", attrs...)
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
func (t TroubleType) eventReason() string {
	var reason strings.Builder
	for word := range strings.SplitSeq(string(t), "-") {
		reason.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return reason.String()
}

// begun says who reports in the term that begins.
func (t *troubles) begun(report func(ctx context.Context, t Trouble, logged bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = report
}

// clear ends all episodes: a term has ended. What it remembers is not kept while the process stands by.
func (t *troubles) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = func(context.Context, Trouble, bool) {}
	clear(t.open)
	t.n.Store(0)
}

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// hotObjects is the number of written objects that are tracked for hot loops. Only objects that are written
// repeatedly within minutes take more than 200 B.
const hotObjects = 1024

// hotLoops detects keys that run and write again and again without progress. It reports them as problems, and holds
// their next runs back: it is an observer and a gate. It keeps a pause only until the key runs, the object is deleted,
// or the pause is over.
type hotLoops struct {
	ignore

	// Immutable.
	detector *detect.HotLoops
	problems *problems

	mu     sync.Mutex
	pauses map[kube.Key]time.Time // guarded by mu; until when keys are held back
}

// newHotLoops returns a hotLoops that compares states of objects as content decodes them.
func newHotLoops(problems *problems, content *contentDecoder) *hotLoops {
	return &hotLoops{
		detector: detect.NewHotLoops(detect.HotLoopsConfig{Content: content.decode, MaxObjects: hotObjects}),
		problems: problems, pauses: map[kube.Key]time.Time{},
	}
}

// wrote records a write, and reports a hot loop if one starts.
func (h *hotLoops) wrote(ctx context.Context, r *running, w *tracedWrite) {
	kind := w.call.Kind.GroupKind()
	if w.written == nil {
		h.detector.ObjectGone(r.run.Key, kind, w.object)
		return
	}
	step := detect.Step{
		Content: w.content, Kind: kind, Object: w.object, Hides: w.call.Hides, After: w.written,
		Manager: w.call.Manager, Run: r.run.ID,
	}
	step.Causes, step.CausesDropped = detectCauses(r.run.Causes)
	if w.before != nil && w.before.Whole {
		step.Before = w.before.Object
	}
	found, began := h.detector.Wrote(r.run.Key, &step, time.Now())
	if !began {
		return
	}
	problem := Problem{
		Type: ProblemHotLoop, Key: r.run.Key, Since: found.Since, Message: found.Message,
		Details: []slog.Attr{
			slog.String("object", kind.Kind+" "+w.object.String()),
			slog.String("managers", strings.Join(found.Managers, ", ")),
		},
	}
	var fields []string
	for _, field := range found.Fields {
		fields = append(fields, field.Path+": "+field.Values[0]+" <-> "+field.Values[1])
	}
	if found.MoreFields > 0 {
		fields = append(fields, fmt.Sprintf("and %d more", found.MoreFields))
	}
	if len(fields) > 0 {
		problem.Details = append(problem.Details, slog.String("fields", strings.Join(fields, "; ")))
	}
	h.problems.begin(ctx, problem, false)
}

// changed records a change of an object that key may write, made by a client other than its handler.
func (h *hotLoops) changed(key kube.Key, c informer.Change, manager string) {
	if !h.detector.Suspect(key) {
		return
	}
	if c.Type == informer.Deleted {
		h.detector.ObjectGone(key, c.Kind().GroupKind(), c.Key)
	}
	if c.Type != informer.Updated {
		return
	}
	before, errBefore := c.States().Old()
	after, errAfter := c.States().New()
	if errBefore == nil && errAfter == nil {
		h.detector.Changed(key, &detect.Step{
			Kind: c.Kind().GroupKind(), Object: c.Key, Before: before, After: after,
			Manager: manager,
		}, time.Now())
	}
}

// objectEnded removes the write history and the pause of key.
func (h *hotLoops) objectEnded(key kube.Key, _ bool) {
	h.detector.Gone(key)
	h.mu.Lock()
	delete(h.pauses, key)
	h.mu.Unlock()
	h.problems.endOf(key, ProblemHotLoop)
}

// ended sets for how long the next run of the key is held back.
func (h *hotLoops) ended(_ context.Context, r *running) {
	key, now := r.run.Key, time.Now()
	pause := h.detector.Pause(key, now)
	h.mu.Lock()
	switch {
	case pause > 0:
		h.pauses[key] = now.Add(pause)
	case len(h.pauses) > 0:
		delete(h.pauses, key)
	}
	h.mu.Unlock()
	if pause > 0 {
		r.mu.Lock()
		r.run.NextReason += fmt.Sprintf(", not before %s have passed (hot loop)", rounded(pause))
		r.mu.Unlock()
	}
}

// hold implements gate. A drain does not wait for a hot loop: the next start handles the key.
func (h *hotLoops) hold(_ context.Context, key kube.Key) workqueue.Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pauses) == 0 {
		return workqueue.Hold{}
	}
	until, paused := h.pauses[key]
	if !paused {
		return workqueue.Hold{}
	}
	return workqueue.Hold{AtMost: time.Until(until), EndsWithDrain: true}
}

// checked ends the problems of hot loops that have shown no sign for long enough, and removes pauses that are over.
func (h *hotLoops) checked(now time.Time, _ []kube.Key) {
	lasting := map[kube.Key]bool{}
	for _, episode := range h.detector.Episodes(now) {
		lasting[episode.Key] = true
	}
	for _, problem := range h.problems.all() {
		if problem.Type == ProblemHotLoop && !lasting[problem.Key] {
			h.problems.endOf(problem.Key, ProblemHotLoop)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Pauses of keys that never ran again.
	maps.DeleteFunc(h.pauses, func(_ kube.Key, until time.Time) bool { return until.Before(now) })
}

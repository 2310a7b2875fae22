package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// hotObjects is the number of written objects that are tracked for hot loops. Only objects that are written
// repeatedly within minutes take more than 200 B.
const hotObjects = 1024

// A key is in a loop of requeues if requeuesOfLoop runs in a row requested another one within requeueSoon and wrote
// nothing, all within requeueWindow. Then its runs are requeuePause apart.
const (
	requeuesOfLoop = 100
	requeueSoon    = 10 * time.Millisecond
	requeueWindow  = time.Second
	requeuePause   = time.Second
)

// hotLoops detects keys that run and write again and again without progress, and keys that only request another run. It
// reports them as problems, and holds their next runs back: it is an observer and a gate. It keeps a pause only until
// the key runs, the object is deleted, or the pause is over.
type hotLoops struct {
	ignore

	// Immutable.
	detector *detect.HotLoops
	content  *contentDecoder
	problems *problems
	maxPause time.Duration // negative: keys are not held back

	mu       sync.Mutex
	pauses   map[kube.Key]time.Time // guarded by mu; until when keys are held back
	requeues map[kube.Key]*requeues // guarded by mu; keys whose last run has requested another one soon
}

// requeues are consecutive runs that requested another one soon and wrote nothing.
type requeues struct {
	since  time.Time
	runs   int
	isLoop bool // reported
}

// newHotLoops returns a hotLoops that compares states of objects as content decodes them.
func newHotLoops(problems *problems, content *contentDecoder, maxPause, resyncInterval time.Duration) *hotLoops {
	return &hotLoops{
		detector: detect.NewHotLoops(hotObjects, max(resyncInterval, 0)), content: content, problems: problems,
		maxPause: maxPause, pauses: map[kube.Key]time.Time{}, requeues: map[kube.Key]*requeues{},
	}
}

// wrote records a write, and reports a hot loop if one starts.
func (h *hotLoops) wrote(ctx context.Context, r *running, w *tracedWrite) {
	if w.Effect != ownwrites.Changed && w.Effect != ownwrites.Deleted {
		return
	}
	kind := w.call.Kind.GroupKind()
	step := detect.Step{
		Kind: kind, Object: w.Key, Hides: w.call.Hides, Manager: w.call.Manager, Run: r.run.ID,
		Created: w.call.Status == http.StatusCreated, Differing: h.content.differing(w.call.Kind),
	}
	step.Causes, step.CausesDropped = detectCauses(r.run.Causes)
	r.mu.Lock()
	step.Owner = r.owner
	r.mu.Unlock()
	if w.Effect == ownwrites.Changed {
		if step.After = w.Object; w.before != nil && w.before.Whole {
			step.Before = w.before.Object
		}
	}
	if w.call.Verb == "patch" {
		step.Sent = w.call.Request
	}
	found, began := h.detector.Wrote(r.run.Key, &step, time.Now())
	if !began {
		return
	}
	problem := Problem{
		Type: ProblemHotLoop, Key: r.run.Key, Since: found.Since, Message: found.Message,
		Details: []slog.Attr{
			slog.String("object", kind.Kind+" "+w.Key.String()),
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

// changed records a change of an object that a suspected key depends on.
func (h *hotLoops) changed(key kube.Key, c informer.Change, manager string) {
	if !h.detector.Suspect(key) {
		return
	}
	if c.Type == informer.Deleted {
		h.detector.ObjectGone(key, c.Kind().GroupKind(), c.Key)
		return
	}
	kind := c.Kind().GroupKind()
	step := detect.Step{Kind: kind, Object: c.Key, Manager: manager, Differing: h.content.differing(c.Kind())}
	var errBefore, errAfter error
	if c.Type == informer.Updated {
		step.Before, errBefore = cache.Of(c).Old()
	}
	if step.After, errAfter = cache.Of(c).New(); errBefore == nil && errAfter == nil {
		h.detector.Changed(key, &step, time.Now())
	}
}

// objectEnded removes the write history and the pause of key.
func (h *hotLoops) objectEnded(key kube.Key, _ bool) {
	h.detector.Gone(key)
	h.mu.Lock()
	delete(h.pauses, key)
	delete(h.requeues, key)
	h.mu.Unlock()
}

// ended sets for how long the next run of the key is held back.
func (h *hotLoops) ended(ctx context.Context, r *running) {
	key, now := r.run.Key, time.Now()
	pause := h.detector.Pause(key, now)
	if h.inRequeueLoop(ctx, r, now) {
		pause = max(pause, requeuePause)
	}
	pause = min(pause, h.maxPause)
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

// inRequeueLoop reports whether the key of a run that has ended is in a loop of requeues. It reports a new one.
func (h *hotLoops) inRequeueLoop(ctx context.Context, r *running, now time.Time) bool {
	key := r.run.Key
	r.mu.Lock() // calls may end after their run
	goesOn := r.run.Outcome == OutcomeRequeue && !r.run.NextRun.After(now.Add(requeueSoon)) && r.run.Writes == 0
	r.mu.Unlock()
	h.mu.Lock()
	known := h.requeues[key]
	if !goesOn {
		delete(h.requeues, key)
		h.mu.Unlock()
		if known != nil && known.isLoop && h.detector.Pause(key, now) == 0 { // no loop of writes lasts
			h.problems.endOf(key, ProblemHotLoop)
		}
		return false
	}
	if known == nil || known.runs == requeuesOfLoop && !known.isLoop {
		known = &requeues{since: r.run.Started}
		h.requeues[key] = known
	}
	known.runs = min(known.runs+1, requeuesOfLoop)
	begins := !known.isLoop && known.runs == requeuesOfLoop && now.Sub(known.since) < requeueWindow
	known.isLoop = known.isLoop || begins
	isLoop, since := known.isLoop, known.since
	h.mu.Unlock()
	if begins {
		h.problems.begin(ctx, Problem{
			Type: ProblemHotLoop, Key: key, Since: since,
			Message: fmt.Sprintf("%d runs in a row, within %s, have written nothing and returned "+
				"RequeueAfter with less "+
				"than %s: return nil when nothing is left to do, or a longer delay", requeuesOfLoop,
				rounded(now.Sub(since)), requeueSoon),
		}, false)
	}
	return isLoop
}

// hold implements gate. A drain does not wait for a hot loop: the next start handles the key.
func (h *hotLoops) hold(_ context.Context, key kube.Key) workqueue.Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, paused := h.pauses[key]
	if !paused {
		return workqueue.Hold{}
	}
	return workqueue.Hold{AtMost: time.Until(until), EndsWithDrain: true}
}

// checked ends the problems of hot loops that have shown no sign for long enough, and removes pauses that are over.
func (h *hotLoops) checked(now time.Time, _ []kube.Key) {
	reported := h.problems.all() // first: a loop that begins meanwhile must not end
	lasting := map[kube.Key]bool{}
	for _, episode := range h.detector.Episodes(now) {
		lasting[episode.Key] = true
	}
	h.mu.Lock()
	for key, known := range h.requeues {
		lasting[key] = lasting[key] || known.isLoop
	}
	h.mu.Unlock()
	for _, problem := range reported {
		if problem.Type == ProblemHotLoop && !lasting[problem.Key] {
			h.problems.endOf(problem.Key, ProblemHotLoop)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Pauses of keys that never ran again.
	maps.DeleteFunc(h.pauses, func(_ kube.Key, until time.Time) bool { return until.Before(now) })
}

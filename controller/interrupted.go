package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/interruptions"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// interrupted records the keys in work in Config.Runs.StateDir, and orders the keys that an earlier process was
// handling when it ended. It is an observer and a gate.
//
// Invariants:
//   - Interrupted keys wait until every other key of the first pass has run once. Stuck handlers are not waited for.
//   - Then they run one at a time, those with the fewest interruptions first: keys that were only in work at the same
//     time as the cause of the end succeed, and are no longer interrupted, before that cause runs.
//   - A key remains interrupted until it succeeds, or has no object.
type interrupted struct {
	ignore

	// Immutable.
	file     *interruptions.File
	release  func(key kube.Key) // of the queue
	objects  objects
	problems *problems
	logger   *slog.Logger

	left   atomic.Bool // counts is not empty; most runs need only this
	failed atomic.Bool // a write has failed, and was logged

	mu     sync.Mutex
	counts map[kube.Key]int      // guarded by mu; interruptions of each interrupted key
	first  map[kube.Key]bool     // guarded by mu; keys of the first pass: true until they run or are held; nil after it
	wait   int                   // guarded by mu; keys in first that are true
	fed    bool                  // guarded by mu; all keys of the first pass are in first
	held   map[kube.Key]struct{} // guarded by mu; interrupted keys that the queue holds
	turn   *kube.Key             // guarded by mu; the interrupted key that may run
}

// newInterrupted returns the interrupted of a term.
func newInterrupted(
	file *interruptions.File, release func(key kube.Key), own objects, problems *problems, logger *slog.Logger,
) *interrupted {
	i := &interrupted{
		file: file, release: release, objects: own, problems: problems, logger: logger,
		counts: file.Counts(), first: map[kube.Key]bool{}, held: map[kube.Key]struct{}{},
	}
	i.left.Store(len(i.counts) > 0)
	return i
}

// begin must be called before workers start. It reports the interrupted keys.
func (i *interrupted) begin(ctx context.Context) {
	if i == nil {
		return
	}
	i.written(i.file.SetShutdown(false))
	for key, count := range i.file.Counts() {
		i.problems.begin(ctx, Problem{
			Type: ProblemInterrupted, Key: key, Since: time.Now(),
			Message: fmt.Sprintf("the process has ended %s while this key was handled: the key runs after all "+
				"others, until it succeeds", counted(count, "time")),
		}, false)
	}
}

// end must be called when the drain has started. The drain does not wait for held keys: the next start handles them.
func (i *interrupted) end() {
	if i != nil {
		i.written(i.file.SetShutdown(true))
	}
}

// added records a key of the first pass. Interrupted keys must not wait for a delayed trigger.
func (i *interrupted) added(key kube.Key, _ *Cause, delayed bool) {
	if delayed || !i.left.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.first[key]; i.first != nil && !i.fed && !known {
		i.first[key] = true
		i.wait++
	}
}

// allAdded records that the queue contains, or contained, all keys of the first pass.
func (i *interrupted) allAdded() {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fed = true
	i.next()
}

// hold implements gate.
func (i *interrupted) hold(_ context.Context, key kube.Key) workqueue.Hold {
	if !i.left.Load() {
		return workqueue.Hold{}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.counts[key] == 0 || i.turn != nil && *i.turn == key {
		return workqueue.Hold{}
	}
	i.held[key] = struct{}{}
	i.passed(key)
	i.next()
	return workqueue.Hold{AtMost: math.MaxInt64, EndsWithDrain: true}
}

// began records that a key is in work.
func (i *interrupted) began(r *running) {
	var err error
	r.slot, err = i.file.Begin(r.run.Key)
	i.written(err)
}

// ended records that a key is not in work anymore. After a success it is not interrupted.
func (i *interrupted) ended(_ context.Context, r *running) {
	key, outcome := r.run.Key, r.run.Outcome
	i.written(i.file.End(r.slot))
	if !i.left.Load() || outcome == OutcomeCancelled { // the term ends, and the next one handles the key
		return
	}
	if !outcome.Failed() {
		i.objectEnded(key, true)
	}
	i.waitNoLonger(key)
}

// checked lets the next interrupted key run when the handler of one is stuck. It forgets keys whose absence could not
// be read at the end of the first pass, because the informer was refused.
func (i *interrupted) checked(_ time.Time, stuck []kube.Key) {
	for _, key := range stuck {
		i.waitNoLonger(key)
	}
	i.forgetMissing(i.objects.Absent)
}

// waitNoLonger lets the next interrupted key run, after key has run, or because its handler is stuck.
func (i *interrupted) waitNoLonger(key kube.Key) {
	if !i.left.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.passed(key)
	if i.turn != nil && *i.turn == key {
		i.turn = nil
	}
	i.next()
}

// objectEnded removes a key that has no object from the interrupted ones.
func (i *interrupted) objectEnded(key kube.Key, forgotten bool) {
	if !forgotten || !i.left.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(key)
}

// forgetMissing removes the keys that are absent and wait for nothing.
func (i *interrupted) forgetMissing(absent func(kube.Key) bool) {
	if !i.left.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for key := range i.counts {
		_, held := i.held[key]
		if !held && i.first == nil && (i.turn == nil || *i.turn != key) && absent(key) {
			i.forget(key)
		}
	}
}

// forget removes a key from the interrupted ones. mu must be held.
func (i *interrupted) forget(key kube.Key) {
	if i.counts[key] == 0 {
		return
	}
	delete(i.counts, key)
	if len(i.counts) == 0 {
		i.left.Store(false)
		i.first = nil
	}
	i.written(i.file.Remove(key))
	i.problems.endOf(key, ProblemInterrupted)
	if _, held := i.held[key]; held {
		delete(i.held, key)
		i.release(key)
	}
}

// passed records that the first pass need not wait for key. mu must be held.
func (i *interrupted) passed(key kube.Key) {
	if i.first[key] {
		i.wait--
	}
	if i.first != nil {
		i.first[key] = false
	}
}

// next releases the next held key if one may run. mu must be held.
func (i *interrupted) next() {
	if !i.fed || i.wait > 0 {
		return
	}
	if i.first != nil {
		i.first = nil
		for key := range i.counts {
			if _, held := i.held[key]; !held && i.objects.Absent(key) {
				i.forget(key) // deleted while no process ran
			}
		}
	}
	if i.turn != nil || len(i.held) == 0 {
		return
	}
	var next []kube.Key
	for key := range i.held {
		next = append(next, key)
	}
	key := slices.MinFunc(next, func(a, b kube.Key) int {
		return cmp.Or(cmp.Compare(i.counts[a], i.counts[b]), cmp.Compare(a.String(), b.String()))
	})
	i.turn = &key
	delete(i.held, key)
	i.release(key)
}

// written logs the first error of a write to the state directory: the controller works without it.
func (i *interrupted) written(err error) {
	if err != nil && !i.failed.Swap(true) {
		i.logger.Warn("cannot record the keys in work: interrupted keys may not be detected after a restart",
			"error", err)
	}
}

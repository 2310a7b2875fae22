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
	"github.com/evenkeel-go/evenkeel/kube"
)

// interrupted records the keys in work in Config.StateDir, and orders the keys that an earlier process was handling
// when it ended. A nil interrupted does nothing.
//
// Invariants:
//   - Interrupted keys wait until every other key of the first pass has run once. Stuck handlers are not waited for.
//   - Then they run one at a time, those with the fewest interruptions first: keys that were only in work at the same
//     time as the cause of the end succeed, and are no longer interrupted, before that cause runs.
//   - A key remains interrupted until it succeeds, or has no object.
type interrupted struct {
	// Immutable.
	file     *interruptions.File
	queue    *queue
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
	ending bool                  // guarded by mu
}

// newInterrupted returns the interrupted of a term; nil if file is nil.
func newInterrupted(
	file *interruptions.File, q *queue, own objects, problems *problems, logger *slog.Logger,
) *interrupted {
	if file == nil {
		return nil
	}
	i := &interrupted{
		file: file, queue: q, objects: own, problems: problems, logger: logger,
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
	if i == nil {
		return
	}
	i.written(i.file.SetShutdown(true))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ending = true
	for key := range i.held {
		i.queue.Release(key)
	}
	clear(i.held)
}

// added records a key of the first pass. It must be called before the key is added to the queue.
func (i *interrupted) added(key kube.Key) {
	if i == nil || !i.left.Load() {
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

// hold returns an interrupted key to the queue if it must not run yet.
func (i *interrupted) hold(key kube.Key) (held bool) {
	if i == nil || !i.left.Load() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.counts[key] == 0, i.turn != nil && *i.turn == key:
		return false
	case i.ending:
		i.queue.Done(key)
		return true
	}
	i.queue.Hold(key, math.MaxInt64)
	i.held[key] = struct{}{}
	i.passed(key)
	i.next()
	return true
}

// started records that a run of key starts. ended must be called with slot.
func (i *interrupted) started(key kube.Key) *interruptions.Slot {
	if i == nil {
		return nil
	}
	slot, err := i.file.Begin(key)
	i.written(err)
	return slot
}

// ended records the end of a run. It must be called before the key is returned to the queue.
func (i *interrupted) ended(key kube.Key, slot *interruptions.Slot, outcome Outcome) {
	if i == nil {
		return
	}
	i.written(i.file.End(slot))
	if !i.left.Load() || outcome == OutcomeCancelled { // the term ends, and the next one handles the key
		return
	}
	if !outcome.Failed() {
		i.remove(key)
	}
	i.waitNoLonger(key)
}

// waitNoLonger lets the next interrupted key run, after key has run, or because its handler is stuck.
func (i *interrupted) waitNoLonger(key kube.Key) {
	if i == nil || !i.left.Load() {
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

// remove removes a key that succeeded or has no object from the interrupted ones.
func (i *interrupted) remove(key kube.Key) {
	if i == nil || !i.left.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(key)
}

// forgetMissing removes the keys that no source lists, a while after the first pass of a controller without a primary
// kind.
func (i *interrupted) forgetMissing() {
	if i == nil || !i.left.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for key := range i.counts {
		if _, held := i.held[key]; !held && i.first == nil && (i.turn == nil || *i.turn != key) && !i.objects.Has(key) {
			i.forget(key)
		}
	}
}

// forget is remove with mu held.
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
		i.queue.Release(key)
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
			if _, held := i.held[key]; !held && !isWithoutObject(i.objects) && !i.objects.Has(key) {
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
	i.queue.Release(key)
}

// written logs the first error of a write to the state directory: the controller works without it.
func (i *interrupted) written(err error) {
	if err != nil && !i.failed.Swap(true) {
		i.logger.Warn("cannot record the keys in work: interrupted keys may not be detected after a restart",
			"error", err)
	}
}

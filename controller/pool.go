package controller

import (
	"context"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

const (
	// replacements is the maximum number of replacements for stuck workers, per configured worker: a goroutine cannot
	// be ended from outside, and each keeps its memory.
	replacements = 3
	// idleAfter is the time after which a worker that waits for a key is idle: if many keys are ready by then, group
	// limits may prevent it from taking any of them.
	idleAfter = 100 * time.Millisecond
)

// pool is the set of a term's workers. Each takes keys from the queue and runs them, one at a time, until the queue is
// shut down, or drained and empty.
//
// Invariants:
//   - As many workers as configured take keys. A worker with a stuck handler is replaced until the handler returns, but
//     there are at most 1+replacements workers per configured one. A worker whose handler ended its goroutine is
//     replaced at once.
//   - After end, stuck workers are not replaced: the drain waits for the workers that exist then.
type pool struct {
	// Immutable after newPool.
	queue      *queue
	controller string
	size       int // configured number of workers
	run        func(ctx context.Context, w *worker, item queueItem) (began bool)
	limits     *limits
	drains     bool // Config.Runs.DrainQueue

	goroutines sync.WaitGroup
	// allow waits until a run may start, and returns false if the intake ends before. Set by start.
	allow func() bool

	mu      sync.Mutex
	workers map[*worker]struct{} // guarded by mu
	left    *sync.Cond           // uses mu; signalled when a worker has ended
	ending  bool                 // guarded by mu; the drain has started and waits for the current workers
}

// worker is one goroutine of a pool.
type worker struct {
	goroutine detect.Goroutine
	current   atomic.Pointer[running] // current run; nil: the worker waits for a key
	// waitsSince is the time since when the worker has waited for a key, in nanoseconds of Unix time; 0: it is not
	// waiting.
	waitsSince atomic.Int64
	replaced   atomic.Bool // its handler was stuck, and another worker has replaced it
}

// newPool returns a pool of size workers that call run for each key that they take, within limits.
func newPool(
	q *queue, controller string, size int, limits *limits, drains bool,
	run func(context.Context, *worker, queueItem) bool,
) *pool {
	p := &pool{
		queue: q, controller: controller, size: size, limits: limits, drains: drains, run: run,
		workers: map[*worker]struct{}{},
	}
	p.left = sync.NewCond(&p.mu)
	return p
}

// start starts the workers. ctx is the parent of the contexts of handlers. intake ends before the queue is shut down or
// drained.
func (p *pool) start(ctx, intake context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow = func() bool { return p.limits.wait(intake) }
	for range p.size {
		p.add(ctx)
	}
}

// add starts a worker. mu must be held.
func (p *pool) add(ctx context.Context) {
	w := &worker{}
	p.workers[w] = struct{}{}
	p.goroutines.Go(func() { p.work(ctx, w) }) // waited for by wait
}

// end marks the start of the drain.
func (p *pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

// wait waits until all workers have ended.
func (p *pool) wait() { p.goroutines.Wait() }

// work is the goroutine of one worker.
func (p *pool) work(ctx context.Context, w *worker) {
	w.goroutine = detect.CurrentGoroutine()
	// Goroutines that handlers start inherit the label. kube uses the label to detect their writes that do not use
	// the run's context.
	ctx = pprof.WithLabels(ctx, pprof.Labels(leadership.ControllerLabel, p.controller))
	pprof.SetGoroutineLabels(ctx)
	returned := false
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.workers, w)
		if !returned && !w.replaced.Load() {
			// A handler called runtime.Goexit, as t.FailNow does: this goroutine ends, and another worker replaces
			// it.
			p.add(ctx)
		}
		p.left.Broadcast()
	}()
	for allowed := false; !w.replaced.Load() || p.takePlace(w); {
		// Before it takes a key: ready keys stay in the queue, in the order of their priorities.
		if allowed = allowed || p.allow(); !allowed && !p.drains {
			break // the queue is about to be shut down
		}
		w.waitsSince.Store(time.Now().UnixNano())
		item, ok := p.queue.Get()
		w.waitsSince.Store(0)
		if !ok {
			break
		}
		// While the queue drains, a worker must not wait without a key, because there may be none.
		if !allowed && !p.limits.wait(ctx) {
			p.queue.Done(item.Key) // the drain time is over, or leadership is lost: the next start handles the key
			continue
		}
		allowed = !p.run(ctx, w, item) // a key that was held back has not used the permission
	}
	returned = true
}

// takePlace lets a replaced worker continue in a drain: others may have ended before its handler returned, and its key
// may have been added again. It waits until another worker has ended. Before a drain it returns false.
func (p *pool) takePlace(w *worker) bool {
	if !p.queue.Stats().Down {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	working := func() (n int) {
		for other := range p.workers {
			if !other.replaced.Load() {
				n++
			}
		}
		return n
	}
	for working() >= p.size {
		p.left.Wait()
	}
	w.replaced.Store(false)
	return true
}

// isIdle reports whether a worker is idle.
func (p *pool) isIdle() bool {
	latest := time.Now().Add(-idleAfter).UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		if since := w.waitsSince.Load(); since != 0 && since <= latest {
			return true
		}
	}
	return false
}

// currentRun is a run that has not ended, as far as is known, and its worker.
type currentRun struct {
	*running
	worker *worker
}

// lasts reports whether the run has not ended.
func (r currentRun) lasts() bool { return r.worker.current.Load() == r.running }

// stack returns the stack of the run's goroutine.
func (r currentRun) stack() string { return detect.StackOf(r.worker.goroutine) }

// runs returns the current runs.
func (p *pool) runs() (all []currentRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		if r := w.current.Load(); r != nil {
			all = append(all, currentRun{r, w})
		}
	}
	return all
}

// longRuns returns the runs that started at or before latest: those that no earlier call has returned as stuck, and
// those that one has, but whose workers were not replaced.
func (p *pool) longRuns(latest time.Time) (stuck, notReplaced []currentRun) {
	for _, r := range p.runs() {
		switch {
		case r.run.Started.After(latest):
		case r.stuck.CompareAndSwap(false, true):
			stuck = append(stuck, r)
		case !r.worker.replaced.Load():
			notReplaced = append(notReplaced, r)
		}
	}
	return stuck, notReplaced
}

// slowRuns returns the runs that started at or before latest, are not stuck, and were not returned before.
func (p *pool) slowRuns(latest time.Time) (slow []*running) {
	for _, r := range p.runs() {
		if !r.run.Started.After(latest) && !r.stuck.Load() && r.slow.CompareAndSwap(false, true) {
			slow = append(slow, r.running)
		}
	}
	return slow
}

// unfinished returns the sum and the maximum of the durations of the current runs.
func (p *pool) unfinished(now time.Time) (sum, longest time.Duration) {
	for _, r := range p.runs() {
		duration := now.Sub(r.run.Started)
		sum, longest = sum+duration, max(longest, duration)
	}
	return sum, longest
}

// handled returns the keys of the current runs, sorted. p may be nil.
func (p *pool) handled() (keys []string) {
	if p == nil {
		return nil
	}
	for _, r := range p.runs() {
		keys = append(keys, r.run.Key.String())
	}
	slices.Sort(keys)
	return keys
}

// replace starts another worker in place of a stuck one. ended is true if the term is ending. replaced is true if
// there were not too many workers already.
func (p *pool) replace(ctx context.Context, stuck *worker) (ended, replaced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || len(p.workers) >= p.size*(1+replacements) {
		return p.ending, false
	}
	stuck.replaced.Store(true)
	p.add(ctx)
	return false, true
}

package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

const (
	// walkShares is in how many shares the objects are walked.
	walkShares = 256
	// resyncStep is the least time between two shares of a resync: short intervals have fewer.
	resyncStep = 20 * time.Millisecond
	// manyQueued is how many keys the first pass lets wait for workers, and fewQueued when
	// it goes on.
	manyQueued = 1024
	fewQueued  = 512
)

// firstPass enqueues every object that is there when the controller begins to work.
//
// It goes no further ahead of the workers than manyQueued: a queue of all objects of a large
// cluster would be larger than the cache. But it does not wait for ever: where changes keep
// the queue full, keys have to be in it to get older than those (workqueue.LowPriorityPatience).
// An object that an event has made run meanwhile has had its first run.
type firstPass struct {
	active atomic.Bool
	room   chan struct{} // has a token when fewer than fewQueued keys wait

	mu  sync.Mutex
	ran map[kube.Key]struct{} // guarded by mu; run, or enqueued as listed, by others than the pass
}

// began notes a run. It is called before the object is read.
func (f *firstPass) began(key kube.Key, causes workqueue.Causes) {
	if !causes.Has(workqueue.CauseListed) {
		f.enqueued(key)
	}
}

// enqueued notes a key that the pass need not enqueue any more.
func (f *firstPass) enqueued(key kube.Key) {
	if !f.active.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active.Load() {
		f.ran[key] = struct{}{}
	}
}

// ended notes that a worker wants its next key.
func (f *firstPass) ended(queued func() int) {
	if f.active.Load() && queued() < fewQueued {
		select {
		case f.room <- struct{}{}:
		default:
		}
	}
}

func (f *firstPass) hasRun(key kube.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ran := f.ran[key]
	return ran
}

// walk is the first pass, and then the resyncs, until ctx ends.
func (l *loop[T]) walk(ctx context.Context) {
	added := 0
	for share := range walkShares {
		if ctx.Err() != nil {
			return
		}
		for c := range l.informer.Listed(share, walkShares) {
			if !l.matters(c) || l.first.hasRun(c.Key) {
				continue
			}
			l.enqueue(c)
			if added++; added%(manyQueued-fewQueued) == 0 && !l.waitForRoom(ctx) {
				return
			}
		}
	}
	l.first.active.Store(false)
	l.first.mu.Lock()
	l.first.ran = nil
	l.first.mu.Unlock()
	l.resync(ctx)
}

// waitForRoom waits until few keys wait for workers, or for long enough. It returns false when
// ctx ends.
func (l *loop[T]) waitForRoom(ctx context.Context) bool {
	patience := time.NewTimer(workqueue.LowPriorityPatience)
	defer patience.Stop()
	for l.queued() >= fewQueued {
		select {
		case <-ctx.Done():
			return false
		case <-patience.C:
			return true
		case <-l.first.room:
		}
	}
	return ctx.Err() == nil
}

func (l *loop[T]) queued() int { return l.queue.Stats().Ready }

// resync enqueues every object once per interval, a share of them at a time, until ctx ends.
//
// It walks the informer instead of keeping a timer per object: objects at rest cost nothing.
func (l *loop[T]) resync(ctx context.Context) {
	interval := l.config.ResyncInterval
	if interval < 0 {
		return
	}
	shares := int(max(1, min(walkShares, interval/resyncStep)))
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ; ; began = began.Add(interval) {
		// What was missed, because the process was stopped or a walk takes longer than the
		// interval, is not made up for.
		if now := time.Now(); now.Sub(began) > interval {
			began = now
		}
		for share := range shares {
			timer.Reset(time.Until(began.Add(resyncMoment(interval, share, shares))))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			for c := range l.informer.Listed(share, shares) {
				if l.matters(c) && l.resyncs(c.Key) {
					l.add(c.Key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseResync}, Priority: workqueue.PriorityLow})
				}
			}
		}
	}
}

// resyncMoment is when a share's turn is, from the beginning of an interval: in the last nine
// tenths of it, so that the first resync does not follow the first pass at once.
func resyncMoment(interval time.Duration, share, shares int) time.Duration {
	spread := interval / 10 * 9
	return interval - spread + time.Duration(float64(spread)*float64(share+1)/float64(shares))
}

// resyncs reports whether a resync may run key: not while it fails, which has its own times,
// nor when only a change can mend it.
func (l *loop[T]) resyncs(key kube.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, fails := l.failures[key]
	_, terminal := l.terminal[key]
	return !fails && !terminal
}

// matters reports whether a change of the controller's own objects is to make the handler run.
func (l *loop[T]) matters(c informer.Change) bool {
	return l.config.Predicate == nil || l.config.Predicate(c)
}

package controller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// batch is the number of keys that are enqueued at once, as soon as fewer than fewQueued keys are ready: a queue
	// with all objects of a large cluster would be larger than the cache.
	batch     = 512
	fewQueued = 512
	// manyQueued is the maximum number of ready keys while workers are idle because the groups of the ready keys are at
	// their limit: keys of other groups may come after them.
	manyQueued = 16_384
	// roomInterval is the interval at which the throttle checks for idle workers.
	roomInterval = time.Second
)

// throttle limits the keys that the feeder has in the queue: after each batch it waits until few keys are ready. It
// does not wait forever while workers are idle, or while changes keep the queue full.
type throttle struct {
	// Immutable.
	queue *queue
	pool  *pool
	room  chan struct{} // has a token when there may be room

	waits atomic.Bool // wait waits for room
	// batch contains the latest keys, and added is the time when the last one was added. Only the feeder's goroutine
	// accesses them.
	batch []kube.Key
	added time.Time
}

// wait waits until key may be added. It returns false when ctx ends.
func (t *throttle) wait(ctx context.Context, key kube.Key) bool {
	if len(t.batch) == batch {
		if !t.waitForRoom(ctx) {
			return false
		}
		t.batch = t.batch[:0]
	}
	t.batch = append(t.batch, key)
	return true
}

// keyAdded records that the key of the last wait was added.
func (t *throttle) keyAdded() { t.added = time.Now() }

// runEnded wakes wait if there is room, after a worker has finished a key.
func (t *throttle) runEnded() {
	if t.waits.Load() && t.queue.Stats().Ready < fewQueued {
		signal(t.room)
	}
}

// waitForRoom waits until few keys are ready. If changes keep the queue full, it waits until workers have taken the
// latest batch: a key must be in the queue to get older than the changes (workqueue.StarvationTimeout). If groups are
// at their limit and workers are idle, it waits at most roomInterval, unless manyQueued keys are ready. It returns
// false when ctx ends.
func (t *throttle) waitForRoom(ctx context.Context) bool {
	t.waits.Store(true)
	defer t.waits.Store(false)
	ticker := time.NewTicker(roomInterval)
	defer ticker.Stop()
	for t.queue.Stats().Ready >= fewQueued {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if t.pool.isIdle() && t.queue.Stats().Ready < manyQueued || t.batchTaken() {
				return true
			}
		case <-t.room:
		}
	}
	return ctx.Err() == nil
}

// batchTaken reports whether workers have taken all keys of the latest batch.
func (t *throttle) batchTaken() bool {
	for _, key := range t.batch {
		if entry, ok := t.queue.Lookup(key); ok && entry.State == workqueue.Ready && !entry.Due.After(t.added) {
			return false // ready since it was added: it was not taken and added again
		}
	}
	return true
}

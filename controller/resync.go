package controller

import (
	"context"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

const (
	// resyncShares is in how many shares the objects are resynced, evenly over the interval.
	resyncShares = 256
	// resyncStep is the least time between two shares: short intervals have fewer.
	resyncStep = 20 * time.Millisecond
)

// resync enqueues every object once per interval, a share of them at a time, until ctx ends.
//
// It walks the informer instead of keeping a timer per object: objects at rest cost nothing.
func (l *loop[T]) resync(ctx context.Context) {
	interval := l.config.ResyncInterval
	if interval < 0 {
		return
	}
	shares := int(max(1, min(resyncShares, interval/resyncStep)))
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for round := time.Duration(0); ; round++ {
		for share := range shares {
			timer.Reset(time.Until(began.Add(round*interval + resyncMoment(interval, share, shares))))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			for key := range l.informer.KeysIn(share, shares) {
				if l.resyncs(key) {
					l.add(key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseResync}, Priority: workqueue.PriorityLow})
				}
			}
		}
	}
}

// resyncMoment is when a share's turn is, from the beginning of an interval: in the last nine
// tenths of it, so that the first resync does not follow the first list at once.
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

package controller

import (
	"context"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// gate decides whether a key that a worker has taken may run now. Own writes that informers do not show yet, keys that
// an earlier process was handling when it ended, and hot loops are gates.
//
// A gate is called without locks, by several workers. To let a held key run before its time, it calls Release of the
// queue, which is safe at any time after hold was called.
type gate interface {
	// hold returns for how long key must wait. hold.AtMost 0: it may run.
	hold(ctx context.Context, key kube.Key) workqueue.Hold
}

// held returns key to the queue if a gate holds it.
func (l *loop[T]) held(ctx context.Context, key kube.Key) bool {
	for _, g := range l.gates {
		if h := g.hold(ctx, key); h.AtMost > 0 {
			l.queue.Hold(key, h)
			return true
		}
	}
	return false
}

package controller

import (
	"context"
	"slices"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// gate decides whether a key needs to run, and whether it may run now. Own writes that informers do not show yet, keys
// that an earlier process was handling when it ended, and hot loops are gates.
//
// A gate is called without locks, by several goroutines. To let a held key run before its time, it calls Release of the
// queue, which is safe at any time after hold was called.
type gate interface {
	// skips reports whether event, which no list has found, is an own write for which key need not run.
	skips(key kube.Key, event ownwrites.Event) bool
	// hold returns for how long key, which a worker has taken, must wait. hold.AtMost 0: it may run.
	hold(ctx context.Context, key kube.Key) workqueue.Hold
}

// gateList asks several gates in order.
type gateList []gate

func (all gateList) skips(key kube.Key, event ownwrites.Event) bool {
	return slices.ContainsFunc(all, func(g gate) bool { return g.skips(key, event) })
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

package controller

import (
	"context"

	"github.com/evenkeel-go/evenkeel/controller/internal/resync"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// resync enqueues every object once per Config.ResyncInterval until ctx ends. It leaves out failing keys, which have
// their own retries.
func (l *loop[T]) resync(ctx context.Context) {
	resync.Run(ctx, resync.Config{
		Interval: l.config.ResyncInterval, Successes: l.successes,
		Resync: func(share, shares int, due func(kube.Key) bool) {
			for c := range l.own.Walk(share, shares) {
				if due(c.Key) && matters(l.config.Predicate, c) && l.failures.resyncs(c) {
					l.enqueuer.addOwn(c.Key, Cause{Type: CauseResync}, queueOptions{Priority: workqueue.PriorityLow})
				}
			}
		},
	})
}

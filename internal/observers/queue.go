package observers

import (
	"context"
	"time"
)

// QueuedKey is a key in the queue of a controller.
type QueuedKey struct {
	Key, State, Causes string
	Due                time.Time // when the key becomes or became ready
}

type queueKey struct{}

// WithQueue returns a context for the Run of a controller, which calls f with a function that returns at most limit
// keys of its queue.
func WithQueue(ctx context.Context, f func(queue func(limit int) []QueuedKey)) context.Context {
	return context.WithValue(ctx, queueKey{}, f)
}

// Queue calls the function of WithQueue, if any.
func Queue(ctx context.Context, queue func(limit int) []QueuedKey) {
	if f, ok := ctx.Value(queueKey{}).(func(queue func(limit int) []QueuedKey)); ok {
		f(queue)
	}
}

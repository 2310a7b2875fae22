package subscription

import (
	"context"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// objects is the receiver of Objects.
type objects[T kube.Object] struct {
	subscription *Subscription[T]
	out          chan T
	queue        *queue
}

func newObjects[T kube.Object](s *Subscription[T]) *objects[T] {
	return &objects[T]{subscription: s, out: make(chan T), queue: newQueue()}
}

func (o *objects[T]) notify(c informer.Change) {
	switch {
	case c.Type == informer.Deleted:
		o.queue.remove(c.Key) // bounds the queue of a channel that is not received from
	case o.subscription.predicate(c):
		o.queue.add(c.Key)
	}
}

func (o *objects[T]) synced() {}

func (o *objects[T]) deliver(ctx context.Context) {
	for {
		key, ok := o.queue.next(ctx)
		if !ok {
			return
		}
		obj, found, err := o.subscription.read(key)
		if err != nil { // the next state may be valid
			o.subscription.logUnread(ctx, key, err)
		}
		if !found {
			continue
		}
		select {
		case o.out <- obj:
		case <-ctx.Done():
			return
		}
	}
}

func (o *objects[T]) end() { close(o.out) }

// read returns the cached state of an object, also while the cache lacks other objects.
func (s *Subscription[T]) read(key kube.Key) (obj T, found bool, err error) {
	encoded, found := cache.Of(s.informer).Encoded(key)
	if !found {
		return obj, false, nil
	}
	obj, err = cache.Decode[T](cache.Of(s.informer), encoded)
	return obj, err == nil, err
}

func (s *Subscription[T]) logUnread(ctx context.Context, key kube.Key, err error) {
	s.logger.WarnContext(ctx, "failed to decode an object; its change is not delivered",
		"subscription", s.name, "key", key.String(), "error", err)
}

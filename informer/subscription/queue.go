package subscription

import (
	"container/list"
	"context"
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
)

// queue contains the keys with undelivered changes, each once, in the order of their addition. Create it with newQueue.
type queue struct {
	filled chan struct{} // capacity 1; has an element if there may be a key

	mu   sync.Mutex
	keys list.List                  // guarded by mu
	in   map[kube.Key]*list.Element // guarded by mu; the elements of keys
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), in: map[kube.Key]*list.Element{}}
}

// add appends key, unless the queue contains it.
func (q *queue) add(key kube.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, waiting := q.in[key]; waiting {
		return
	}
	q.in[key] = q.keys.PushBack(key)
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// remove removes key, because it has no undelivered change anymore.
func (q *queue) remove(key kube.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if element, waiting := q.in[key]; waiting {
		q.drop(element)
	}
}

// drop removes an element. mu must be held.
func (q *queue) drop(element *list.Element) (key kube.Key) {
	key = q.keys.Remove(element).(kube.Key)
	if delete(q.in, key); len(q.in) == 0 {
		q.in = map[kube.Key]*list.Element{} // a map does not free the memory of removed entries
	}
	return key
}

// next waits for a key and removes it. It returns false when ctx has ended.
func (q *queue) next(ctx context.Context) (kube.Key, bool) {
	for {
		if key, ok := q.take(); ok {
			return key, ctx.Err() == nil
		}
		select {
		case <-q.filled:
		case <-ctx.Done():
			return kube.Key{}, false
		}
	}
}

func (q *queue) take() (key kube.Key, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.keys.Front(); first != nil {
		return q.drop(first), true
	}
	return kube.Key{}, false
}

package subscription

import (
	"context"
	"slices"
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
)

// queue contains the keys with undelivered changes, each once, in the order of their addition. Create it with newQueue.
type queue struct {
	filled chan struct{} // capacity 1; has an element if there may be a key

	mu   sync.Mutex
	keys []kube.Key            // guarded by mu; the next key is the first one that in contains
	in   map[kube.Key]struct{} // guarded by mu; the keys that were not removed
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), in: map[kube.Key]struct{}{}}
}

// add appends key, unless the queue contains it.
func (q *queue) add(key kube.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, waiting := q.in[key]; waiting {
		return
	}
	q.in[key] = struct{}{}
	q.keys = append(q.keys, key)
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// remove removes key, because it has no undelivered change anymore.
func (q *queue) remove(key kube.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.in, key)
	const few = 64
	if len(q.keys) < 2*len(q.in)+few {
		return
	}
	kept := make(map[kube.Key]struct{}, len(q.in))
	q.keys = slices.DeleteFunc(slices.Clone(q.keys), func(other kube.Key) bool {
		_, isKept := kept[other]
		if _, waiting := q.in[other]; !waiting || isKept {
			return true
		}
		kept[other] = struct{}{}
		return false
	})
	q.in = kept // a map does not free the memory of removed entries
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
	for len(q.keys) > 0 {
		key, q.keys = q.keys[0], q.keys[1:]
		if _, waiting := q.in[key]; waiting {
			delete(q.in, key)
			return key, true
		}
	}
	q.keys = nil // frees the consumed part
	return kube.Key{}, false
}

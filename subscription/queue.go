package subscription

import (
	"context"
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
)

// queue has the keys about which there is something to tell, each once, in the order in which
// they came. Its zero value is not usable; newQueue makes one.
type queue struct {
	filled chan struct{} // with room for one: there may be a key

	mu   sync.Mutex
	keys []kube.Key            // guarded by mu; the first one is next
	in   map[kube.Key]struct{} // guarded by mu; those of keys
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), in: map[kube.Key]struct{}{}}
}

// add puts key at the end, unless it is there.
func (q *queue) add(key kube.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, waits := q.in[key]; waits {
		return
	}
	q.in[key] = struct{}{}
	q.keys = append(q.keys, key)
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// next waits for a key and takes it out. It returns false when ctx has ended.
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
	if len(q.keys) == 0 {
		q.keys = nil // what has been read of it is free again
		return key, false
	}
	key, q.keys = q.keys[0], q.keys[1:]
	delete(q.in, key)
	return key, true
}

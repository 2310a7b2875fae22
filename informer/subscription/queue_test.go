package subscription

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	q := newQueue()
	waits := map[kube.Key]bool{}
	for range 100_000 {
		key := kube.Key{Name: fmt.Sprint(random.IntN(300))}
		switch random.IntN(5) {
		case 0, 1:
			q.add(key)
			waits[key] = true
		case 2, 3:
			q.remove(key)
			delete(waits, key)
		default:
			key, ok := q.take()
			if ok != (len(waits) > 0) || ok && !waits[key] {
				t.Fatalf("took %s (%t) while %d keys are queued", key, ok, len(waits))
			}
			delete(waits, key)
		}
		if q.keys.Len() != len(waits) {
			t.Fatalf("the queue has %d entries for %d keys", q.keys.Len(), len(waits))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := q.next(ctx); ok {
		t.Error("a key was taken after the end of the context")
	}
}

package httpauth

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/lru"
)

const (
	positiveTTL = time.Minute      // of an accepted token or access
	negativeTTL = 10 * time.Second // of a rejected one
	maxEntries  = 1024             // of each kind
)

// cache caches results of reviews, at most maxEntries positive and maxEntries negative ones. Negative results, which
// clients can cause without limit, never evict positive ones. Requests for the same key share one review.
type cache[K comparable, V any] struct {
	budget *budget // shared by the caches of a Filter

	mu                 sync.Mutex
	positive, negative *lru.Cache       // of entry[V]; guarded by mu; positive also contains expired results
	flights            map[K]*flight[V] // guarded by mu; reviews in progress
}

// entry is a value in a cache.
type entry[V any] struct {
	value   V
	expires time.Time
}

// lookup returns the value of a key. fresh is true if it has not expired.
func lookup[V any](in *lru.Cache, key any) (value V, fresh, found bool) {
	known, found := in.Get(key)
	if !found {
		return value, false, false
	}
	e := known.(entry[V])
	return e.value, time.Now().Before(e.expires), true
}

// flight is a review in progress. The result is valid when done is closed.
type flight[V any] struct {
	done   chan struct{}
	result V
	err    error
}

func newCache[K comparable, V any](b *budget) *cache[K, V] {
	return &cache[K, V]{
		budget: b, positive: lru.New(maxEntries), negative: lru.New(maxEntries), flights: map[K]*flight[V]{},
	}
}

// get returns the result for a key: the cached one, that of a review in progress, or that of review, which reports
// whether it is positive. Errors are not cached. client limits reviews without a positive result: see budget.
func (c *cache[K, V]) get(
	ctx context.Context, client string, key K, review func(context.Context) (V, bool, error),
) (V, error) {
	for {
		c.mu.Lock()
		result, fresh, known := lookup[V](c.positive, key)
		if !fresh {
			result, fresh, _ = lookup[V](c.negative, key)
		}
		if fresh {
			c.mu.Unlock()
			return result, nil
		}
		f := c.flights[key]
		switch {
		case f == nil && !known && !c.budget.add(client, 1):
			c.mu.Unlock()
			return result, errTooMany
		case f == nil:
			f = &flight[V]{done: make(chan struct{}), err: errors.New("the review panicked")}
			c.flights[key] = f
			c.mu.Unlock()
			c.fly(ctx, client, key, known, f, review)
			return f.result, f.err
		}
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
		// The client that made the review may have disconnected, which is not a result for this one.
		if !errors.Is(f.err, context.Canceled) {
			return f.result, f.err
		}
	}
}

// fly makes a review. A key that had a positive result before needed no budget: so a hostile client with the same
// address does not lock out another one.
func (c *cache[K, V]) fly(
	ctx context.Context, client string, key K, known bool, f *flight[V], review func(context.Context) (V, bool, error),
) {
	positive := false
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case f.err != nil:
		case positive:
			c.positive.Add(key, entry[V]{f.result, time.Now().Add(positiveTTL)})
		default:
			c.negative.Add(key, entry[V]{f.result, time.Now().Add(negativeTTL)})
		}
		delete(c.flights, key)
		close(f.done)
	}()
	f.result, positive, f.err = review(ctx)
	if positive && !known {
		c.budget.add(client, -1)
	}
}

// A client may cause maxFailures reviews without a positive result in failureWindow. So tokens that are all different
// cannot load the API server.
const (
	maxFailures   = 20
	failureWindow = 10 * time.Second
)

var errTooMany = errors.New("too many reviews without a positive result")

// budget limits the reviews of clients.
type budget struct {
	mu      sync.Mutex
	reviews *lru.Cache // of entry[int], by client; guarded by mu
}

// add adds n to the reviews of a client, unless they become too many.
func (b *budget) add(client string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := entry[int]{expires: time.Now().Add(failureWindow)}
	if known, ok := b.reviews.Get(client); ok && time.Now().Before(known.(entry[int]).expires) {
		e = known.(entry[int])
	}
	if e.value = max(e.value+n, 0); e.value > maxFailures {
		return false
	}
	b.reviews.Add(client, e)
	return true
}

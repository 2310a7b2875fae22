package httpauth

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	positiveTTL = time.Minute      // of an accepted token or access
	negativeTTL = 10 * time.Second // of a rejected one
	maxEntries  = 1024             // of each kind
)

// cache caches results of reviews, at most maxEntries positive and maxEntries negative ones. Negative results, which
// clients can cause without limit, never evict positive ones. Requests for the same key share one review.
type cache[K comparable, V any] struct {
	mu       sync.Mutex
	positive lru[K, V]            // guarded by mu; also contains expired results
	negative lru[K, V]            // guarded by mu
	flights  map[K]*flight[V]     // guarded by mu; reviews in progress
	budget   *lru[string, window] // shared by the caches of a Filter; guarded by budgetMu
	budgetMu *sync.Mutex
}

// flight is a review in progress. The result is valid when done is closed.
type flight[V any] struct {
	done   chan struct{}
	result V
	err    error
}

func newCache[K comparable, V any](budget *lru[string, window], budgetMu *sync.Mutex) *cache[K, V] {
	return &cache[K, V]{flights: map[K]*flight[V]{}, budget: budget, budgetMu: budgetMu}
}

// get returns the result for a key: the cached one, that of a review in progress, or that of review, which reports
// whether it is positive. Errors are not cached. client limits reviews without a positive result: see takeBudget.
func (c *cache[K, V]) get(
	ctx context.Context, client string, key K, review func(context.Context) (V, bool, error),
) (V, error) {
	for {
		c.mu.Lock()
		result, fresh, known := c.positive.get(key)
		if !fresh {
			result, fresh, _ = c.negative.get(key)
		}
		if fresh {
			c.mu.Unlock()
			return result, nil
		}
		f := c.flights[key]
		switch {
		case f == nil && !known && !c.takeBudget(client):
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
			c.positive.put(key, f.result, positiveTTL)
		default:
			c.negative.put(key, f.result, negativeTTL)
		}
		delete(c.flights, key)
		close(f.done)
	}()
	f.result, positive, f.err = review(ctx)
	if positive && !known {
		c.returnBudget(client)
	}
}

// A client may cause maxFailures reviews without a positive result in failureWindow. So tokens that are all different
// cannot load the API server.
const (
	maxFailures   = 20
	failureWindow = 10 * time.Second
)

// window is the number of reviews of a client since it began.
type window struct{ reviews int }

var errTooMany = errors.New("too many reviews without a positive result")

// takeBudget counts a review of a client.
func (c *cache[K, V]) takeBudget(client string) bool {
	c.budgetMu.Lock()
	defer c.budgetMu.Unlock()
	w, fresh, _ := c.budget.get(client)
	switch {
	case !fresh:
		c.budget.put(client, window{1}, failureWindow)
		return true
	case w.reviews >= maxFailures:
		return false
	}
	c.budget.change(client, window{w.reviews + 1})
	return true
}

// returnBudget uncounts a review with a positive result.
func (c *cache[K, V]) returnBudget(client string) {
	c.budgetMu.Lock()
	defer c.budgetMu.Unlock()
	if w, _, found := c.budget.get(client); found && w.reviews > 0 {
		c.budget.change(client, window{w.reviews - 1})
	}
}

// lru is a map of at most maxEntries values. A further one replaces the least recently used one. Its zero value is
// empty.
type lru[K comparable, V any] struct {
	elements map[K]*list.Element
	order    list.List // of *entry[K, V], most recently used first
}

type entry[K comparable, V any] struct {
	key     K
	value   V
	expires time.Time
}

func (l *lru[K, V]) get(key K) (value V, fresh, found bool) {
	element, found := l.elements[key]
	if !found {
		return value, false, false
	}
	l.order.MoveToFront(element)
	e := element.Value.(*entry[K, V])
	return e.value, time.Now().Before(e.expires), true
}

func (l *lru[K, V]) put(key K, value V, ttl time.Duration) {
	l.remove(key)
	if l.elements == nil {
		l.elements = map[K]*list.Element{}
	}
	l.elements[key] = l.order.PushFront(&entry[K, V]{key, value, time.Now().Add(ttl)})
	if l.order.Len() > maxEntries {
		l.remove(l.order.Back().Value.(*entry[K, V]).key)
	}
}

// change replaces the value of a key that has one.
func (l *lru[K, V]) change(key K, value V) { l.elements[key].Value.(*entry[K, V]).value = value }

func (l *lru[K, V]) remove(key K) {
	if element, found := l.elements[key]; found {
		l.order.Remove(element)
		delete(l.elements, key)
	}
}

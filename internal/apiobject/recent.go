package apiobject

import (
	"sync"
	"time"
)

// Recent is a map that drops the entries that were not used for some time. It is safe for concurrent use.
type Recent[K comparable, V any] struct {
	// Keep is the minimum time for which an entry is kept after it was read or stored. It must be set before the first
	// use, and is at least half of the maximum time.
	Keep time.Duration

	mu              sync.Mutex
	recent, earlier map[K]V   // guarded by mu
	since           time.Time // the start of recent; guarded by mu
}

// Do calls change with the value of key, or the zero value, and stores what it changes. change must not use r.
func (r *Recent[K, V]) Do(key K, change func(value *V)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent == nil || time.Since(r.since) > r.Keep {
		if time.Since(r.since) > 2*r.Keep {
			r.recent = nil // none of them was used for Keep
		}
		r.earlier, r.recent, r.since = r.recent, map[K]V{}, time.Now()
	}
	value, ok := r.recent[key]
	if !ok {
		value = r.earlier[key]
	}
	change(&value)
	r.recent[key] = value
}

// Get returns the value of key, or the zero value, for which it stores nothing.
func (r *Recent[K, V]) Get(key K) (value V) {
	r.mu.Lock()
	_, inRecent := r.recent[key]
	_, inEarlier := r.earlier[key]
	r.mu.Unlock()
	if inRecent || inEarlier {
		r.Do(key, func(v *V) { value = *v })
	}
	return value
}

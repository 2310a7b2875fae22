package detect

import "iter"

// lru is a map of bounded size that evicts the least recently used entry. It is not safe for concurrent use.
type lru[K comparable, V any] struct {
	limit   int
	entries map[K]*entry[K, V]
	ring    entry[K, V] // ring.next is the most recently used entry, ring.prev the least recently used
}

type entry[K comparable, V any] struct {
	prev, next *entry[K, V]
	key        K
	value      V
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	l := &lru[K, V]{limit: limit, entries: make(map[K]*entry[K, V])}
	l.ring.prev, l.ring.next = &l.ring, &l.ring
	return l
}

func (l *lru[K, V]) len() int { return len(l.entries) }

// get returns the value of key, and marks it as used.
func (l *lru[K, V]) get(key K) (value V, ok bool) {
	e := l.entries[key]
	if e == nil {
		return value, false
	}
	e.unlink()
	e.link(&l.ring, l.ring.next)
	return e.value, true
}

// peek returns the value of key without marking it as used.
func (l *lru[K, V]) peek(key K) (value V, ok bool) {
	e := l.entries[key]
	if e == nil {
		return value, false
	}
	return e.value, true
}

// add adds a value under key, which must be new. If there are limit entries already, it evicts and returns the least
// recently used value. With evictNext it becomes the least recently used entry, which is evicted next unless it is
// used.
func (l *lru[K, V]) add(key K, value V, evictNext bool) (gone V, full bool) {
	var e *entry[K, V]
	if len(l.entries) < l.limit {
		e = &entry[K, V]{}
	} else {
		e = l.ring.prev
		e.unlink()
		delete(l.entries, e.key)
		gone, full = e.value, true
	}
	e.key, e.value = key, value
	if evictNext {
		e.link(l.ring.prev, &l.ring)
	} else {
		e.link(&l.ring, l.ring.next)
	}
	l.entries[key] = e
	return gone, full
}

// oldest returns the least recently used entry.
func (l *lru[K, V]) oldest() (key K, value V, ok bool) {
	e := l.ring.prev
	return e.key, e.value, e != &l.ring
}

// all iterates over the entries in no particular order. The loop body may remove the current entry.
func (l *lru[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, e := range l.entries {
			if !yield(key, e.value) {
				return
			}
		}
	}
}

func (l *lru[K, V]) remove(key K) {
	if e := l.entries[key]; e != nil {
		e.unlink()
		delete(l.entries, key)
	}
}

func (e *entry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (e *entry[K, V]) link(prev, next *entry[K, V]) {
	e.prev, e.next = prev, next
	prev.next, next.prev = e, e
}

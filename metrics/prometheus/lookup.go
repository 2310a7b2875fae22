package prometheus

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// otherValue is the label of what is not admitted to a lookup, so that no caller can make up
// series without end.
const otherValue = "other"

// lookup keeps what belongs to each of a set of names: series, which to find by their labels
// costs more than to count in them. It is on the way of each event and run, and reads without
// a lock; who adds a name copies the map, which happens once for each.
type lookup[V any] struct {
	// Immutable after newLookup.
	admit  admission
	create func(label string) V
	other  func() V // what all names share that are not admitted

	known atomic.Pointer[map[string]V]
	mu    sync.Mutex // held while known is replaced
}

// admission reports whether a name gets something of its own, when known names have.
type admission func(known int, name string) bool

func anyName(int, string) bool { return true }

// upTo admits the first names, as many as limit.
func upTo(limit int) admission {
	return func(known int, _ string) bool { return known < limit }
}

// oneOf admits a fixed set.
func oneOf[K ~string](all []K) admission {
	return func(_ int, name string) bool { return slices.Contains(all, K(name)) }
}

// newLookup returns a lookup that creates what belongs to the names of first at once, and the
// rest when it is asked for.
func newLookup[V any, K ~string](admit admission, create func(label string) V, first ...K) *lookup[V] {
	l := &lookup[V]{admit: admit, create: create, other: sync.OnceValue(func() V { return create(otherValue) })}
	known := map[string]V{}
	for _, name := range first {
		known[string(name)] = create(label(string(name)))
	}
	l.known.Store(&known)
	return l
}

func (l *lookup[V]) of(name string) V {
	known := *l.known.Load()
	if v, found := known[name]; found {
		return v
	}
	if !l.admit(len(known), name) {
		return l.other()
	}
	return l.add(name)
}

func (l *lookup[V]) add(name string) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := *l.known.Load()
	if v, found := known[name]; found {
		return v
	}
	if !l.admit(len(known), name) {
		return l.other()
	}
	v := l.create(label(name))
	next := maps.Clone(known)
	next[name] = v
	l.known.Store(&next)
	return v
}

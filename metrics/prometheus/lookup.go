package prometheus

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// otherValue is the label value of all names that a lookup does not admit, which bounds the number of series.
const otherValue = "other"

// lookup maps names to values such as counters, because finding a series by its labels is more expensive than
// incrementing it. Every event and run uses it: get takes no lock. Adding a name copies the map, once per name.
//
// Invariant: a map in known is never changed.
type lookup[V any] struct {
	// Immutable after newLookup.
	admit  admission
	create func(label string) V
	other  func() V // the value of all names that are not admitted

	known atomic.Pointer[map[string]V]
	mu    sync.Mutex // held while known is replaced, so that no name is created twice
}

// admission reports whether a new name gets its own value. known is the number of existing names.
type admission func(known int, name string) bool

func anyName(int, string) bool { return true }

// upTo admits new names while there are fewer than limit.
func upTo(limit int) admission {
	return func(known int, _ string) bool { return known < limit }
}

// oneOf admits the names in all.
func oneOf[K ~string](all []K) admission {
	return func(_ int, name string) bool { return slices.Contains(all, K(name)) }
}

// newLookup returns a lookup that creates the values of first at once, and other values on first use.
func newLookup[V any, K ~string](admit admission, create func(label string) V, first ...K) *lookup[V] {
	l := &lookup[V]{admit: admit, create: create, other: sync.OnceValue(func() V { return create(otherValue) })}
	known := map[string]V{}
	for _, name := range first {
		known[string(name)] = create(label(string(name)))
	}
	l.known.Store(&known)
	return l
}

func (l *lookup[V]) get(name string) V {
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

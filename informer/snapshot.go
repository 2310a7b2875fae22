package informer

import (
	"fmt"
	"iter"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Snapshot is the state of an informer's cache at one time. It never changes, and it blocks nothing. It uses memory for
// the objects that have changed since. For combined Retrievers, the times of the parts differ slightly.
type Snapshot[T kube.Object] struct {
	informer *Informer[T]
	parts    []*store.Snapshot
	err      error // ErrNotRunning, or nil
}

// Snapshot returns the current state of the cache. If the informer does not run, reads of the Snapshot return
// ErrNotRunning. A Snapshot stays readable after the informer has stopped.
func (i *Informer[T]) Snapshot() Snapshot[T] {
	parts, err := i.core.readable()
	s := Snapshot[T]{informer: i, err: err}
	for _, p := range parts {
		s.parts = append(s.parts, p.objects().Snapshot())
	}
	return s
}

// Get does the same as Informer.Get, at the time of the snapshot.
func (s Snapshot[T]) Get(key kube.Key) (obj T, found bool, err error) {
	for _, p := range s.parts {
		if ref, found := p.Get(key); found {
			obj, err = s.informer.read(ref)
			return obj, err == nil, err
		}
	}
	return obj, false, s.err
}

// List does the same as Informer.List, at the time of the snapshot. It yields each object exactly once.
func (s Snapshot[T]) List(query Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if s.err != nil {
			var none T
			yield(none, s.err)
			return
		}
		for _, p := range s.parts {
			if !yieldAll(s.informer, p.List(query.inStore()), yield) {
				return
			}
		}
	}
}

// Count does the same as Informer.Count, at the time of the snapshot.
func (s Snapshot[T]) Count(query Query) (int, error) {
	n := 0
	for _, p := range s.parts {
		count, err := p.Count(query.inStore())
		if err != nil {
			return 0, fmt.Errorf("informer %q: count: %w", s.informer.Name(), err)
		}
		n += count
	}
	return n, s.err
}

// Len returns the number of objects.
func (s Snapshot[T]) Len() int {
	n := 0
	for _, p := range s.parts {
		n += p.Len()
	}
	return n
}

// yieldAll decodes and yields objects. It returns false if yield returned false.
func yieldAll[T kube.Object](i *Informer[T], objects iter.Seq2[*wire.Object, error], yield func(T, error) bool) bool {
	for o, err := range objects {
		var obj T
		if err == nil {
			obj, err = i.decode(o)
		}
		if !yield(obj, err) {
			return false
		}
	}
	return true
}

package informer

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Snapshot is the state of an informer's cache at one time. It never changes, and it blocks nothing. It uses memory for
// the objects that have changed since. For combined Retrievers, the times of the parts differ slightly.
type Snapshot[T kube.Object] struct {
	informer *Informer[T]
	parts    []reader
	gaps     gaps
	err      error // ErrNotRunning, or nil
}

// reader is a store, or a snapshot of one.
type reader interface {
	Get(key kube.Key) (store.Ref, bool)
	Find(query store.Query) iter.Seq2[*store.Found, error]
	Count(query store.Query) (int, error)
	Len() int
}

// Snapshot returns the current state of the cache. Its reads have the errors of the informer's reads at this time. A
// Snapshot stays readable after the informer has stopped.
func (i *Informer[T]) Snapshot() Snapshot[T] {
	return i.view(func(objects *store.Store) reader { return objects.Snapshot() })
}

// live returns a view of the cache that changes with it.
func (i *Informer[T]) live() Snapshot[T] {
	return i.view(func(objects *store.Store) reader { return objects })
}

func (i *Informer[T]) view(of func(*store.Store) reader) Snapshot[T] {
	parts, gaps, err := i.core.readable()
	s := Snapshot[T]{informer: i, gaps: gaps, err: err}
	for _, p := range parts {
		s.parts = append(s.parts, of(p.objects()))
	}
	return s
}

// Get does the same as Informer.Get, at the time of the snapshot.
func (s Snapshot[T]) Get(key kube.Key) (obj T, found bool, err error) {
	missing, hidden := s.gaps.of(key)
	if err = cmp.Or(s.err, hidden); err != nil {
		return obj, false, err
	}
	for _, p := range s.parts {
		if ref, found := p.Get(key); found {
			obj, err = s.informer.read(ref)
			return obj, err == nil, err
		}
	}
	return obj, false, missing
}

// errIn returns the error of a read of all objects in a namespace; empty: in any.
func (s Snapshot[T]) errIn(namespace string) error {
	missing, _ := s.gaps.of(kube.Key{Namespace: namespace})
	return cmp.Or(s.err, missing)
}

// List does the same as Informer.List, at the time of the snapshot. It yields each object exactly once.
func (s Snapshot[T]) List(query Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := s.errIn(query.Namespace); err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, p := range s.parts {
			for obj, err := range s.informer.list(p, store.Query(query), nil) {
				if !yield(obj, err) {
					return
				}
			}
		}
	}
}

// Count does the same as Informer.Count, at the time of the snapshot.
func (s Snapshot[T]) Count(query Query) (int, error) {
	if err := s.errIn(query.Namespace); err != nil {
		return 0, err
	}
	n := 0
	for _, p := range s.parts {
		count, err := p.Count(store.Query(query))
		if err != nil {
			return 0, fmt.Errorf("informer %q: count: %w", s.informer.Name(), err)
		}
		n += count
	}
	return n, nil
}

// Len returns the number of objects.
func (s Snapshot[T]) Len() int {
	n := 0
	for _, p := range s.parts {
		n += p.Len()
	}
	return n
}

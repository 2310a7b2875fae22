package informer

import (
	"fmt"
	"iter"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Snapshot is what an informer kept at one moment. It does not change, holds nothing up, and
// costs the memory of what has changed since. Of an informer of several Retrievers that were
// joined, the moments of each part are a little apart.
type Snapshot[T kube.Object] struct {
	informer *Informer[T]
	parts    []*store.Snapshot
	err      error // nobody ran the informer
}

// Snapshot returns what the informer keeps now. When nobody runs the informer, the reads of the
// Snapshot return ErrNotRunning. A Snapshot stays readable when the informer ends later.
func (i *Informer[T]) Snapshot() Snapshot[T] {
	parts, err := i.core.readable()
	s := Snapshot[T]{informer: i, err: err}
	for _, p := range parts {
		s.parts = append(s.parts, p.objects().Snapshot())
	}
	return s
}

// Get is Informer.Get, of the snapshot's moment.
func (s Snapshot[T]) Get(key kube.Key) (obj T, found bool, err error) {
	for _, p := range s.parts {
		if ref, found := p.Get(key); found {
			obj, err = s.informer.read(ref)
			return obj, err == nil, err
		}
	}
	return obj, false, s.err
}

// List is Informer.List, of the snapshot's moment: each object that there was is in it, once.
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

// Count is Informer.Count, of the snapshot's moment.
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

// Len is the number of objects.
func (s Snapshot[T]) Len() int {
	n := 0
	for _, p := range s.parts {
		n += p.Len()
	}
	return n
}

// read decodes a kept object.
func (i *Informer[T]) read(ref store.Ref) (obj T, err error) {
	err = ref.Read(func(o *wire.Object) error {
		obj, err = i.decode(o)
		return err
	})
	return obj, err
}

// yieldAll decodes objects as they come. It returns false when it was told to stop.
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

package informer

import (
	"fmt"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// SharedReader reads the objects of an informer without copying them. Informer.WithoutCopies makes it; the reads of a
// zero SharedReader panic.
type SharedReader[T kube.Object] struct{ informer *Informer[T] }

// WithoutCopies returns a reader of the same objects that copies nothing: it returns an object that is kept decoded
// (see SetDecodedBudget) to each caller. Other objects are decoded for the caller.
//
// The caller must not change the objects: a change shows in all later reads of the object, also in copies. DeepCopy
// returns a copy to change. Some methods change an object too: String of a resource.Quantity keeps its result. In a
// program that go test runs, the next read of a changed object returns an error.
func (i *Informer[T]) WithoutCopies() SharedReader[T] {
	shared := *i
	shared.shared = true
	return SharedReader[T]{&shared}
}

// Get is like Informer.Get, and returns the object that all readers share.
func (s SharedReader[T]) Get(key kube.Key) (obj T, found bool, err error) { return s.informer.Get(key) }

// List is like Informer.List, and yields the objects that all readers share.
func (s SharedReader[T]) List(query Query) iter.Seq2[T, error] { return s.informer.List(query) }

// read returns a cached object.
func (i *Informer[T]) read(ref store.Ref) (obj T, err error) {
	return i.readOrDecode(&ref, func() (obj T, err error) {
		err = ref.Read(func(o *wire.Object) error {
			obj, err = i.decode(o)
			return err
		})
		return obj, err
	})
}

// readApplied returns a cached object, and the fields that KeepAppliedBy has kept with it.
func (i *Informer[T]) readApplied(ref store.Ref) (obj T, applied *metav1.ManagedFieldsEntry, err error) {
	err = ref.Read(func(o *wire.Object) error {
		if entry, found := o.AppliedFields(); found {
			applied = &entry
		}
		obj, err = i.readOrDecode(&ref, func() (T, error) { return i.decode(o) })
		return err
	})
	return obj, applied, err
}

// readOrDecode returns the object of a state if it is kept decoded, and otherwise what decode returns.
func (i *Informer[T]) readOrDecode(ref *store.Ref, decode func() (T, error)) (obj T, err error) {
	k := readKey{ref.Store(), i.object, ref.KeyInState()}
	kept, reading, err := i.decoded.find(k, ref.Kept, i.shared)
	if err != nil {
		return obj, fmt.Errorf("informer %q: read %s: %w", i.core.name, k.key, err)
	}
	if kept != nil {
		return kept.(T), nil //nolint:forcetypeassert // the key has the type
	}
	if obj, err = decode(); reading.again && err == nil {
		kept = i.decoded.keep(k, reading, i.core.decodedUse, ref.Kept, obj, i.core.logger)
		return kept.(T), nil //nolint:forcetypeassert // it is obj or a copy
	}
	return obj, err
}

// list reads the objects that query selects, unless skip returns true for their keys.
func (i *Informer[T]) list(from reader, query store.Query, skip func(kube.Key) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for found, err := range from.Find(query) {
			var obj T
			if err == nil {
				if skip != nil && skip(found.KeyInState()) {
					continue
				}
				obj, err = i.readOrDecode(&found.Ref, func() (obj T, err error) {
					o, err := found.Object()
					if err != nil {
						return obj, err
					}
					return i.decode(o)
				})
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// decode decodes an object of this informer.
func (i *Informer[T]) decode(o *wire.Object) (T, error) {
	began := time.Now()
	obj, err := i.decoder.Decode(o)
	i.core.counters.decoded.Add(1)
	i.core.counters.decodeTime.Add(int64(time.Since(began)))
	if err != nil {
		return obj, fmt.Errorf("informer %q: decode %s: %w", i.core.name, o.Key, err)
	}
	return obj, nil
}

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

// read returns a copy of a cached object.
func (i *Informer[T]) read(ref store.Ref) (obj T, err error) {
	kept, keep := i.decoded.find(i.readKey(&ref), ref.Kept)
	if kept != nil {
		return kept.(T), nil //nolint:forcetypeassert // the key has the type
	}
	err = ref.Read(func(o *wire.Object) error {
		obj, err = i.decode(o)
		return err
	})
	i.keep(&ref, obj, keep && err == nil)
	return obj, err
}

// readApplied is read, and returns the fields that KeepAppliedBy has kept with the object.
func (i *Informer[T]) readApplied(ref store.Ref) (obj T, applied *metav1.ManagedFieldsEntry, err error) {
	kept, keep := i.decoded.find(i.readKey(&ref), ref.Kept)
	err = ref.Read(func(o *wire.Object) error {
		if entry, found := o.AppliedFields(); found {
			applied = &entry
		}
		if kept == nil {
			obj, err = i.decode(o)
		}
		return err
	})
	if kept != nil {
		obj = kept.(T) //nolint:forcetypeassert // the key has the type
	}
	i.keep(&ref, obj, keep && err == nil)
	return obj, applied, err
}

// list returns copies of the objects that query selects, unless skip returns true for their keys.
func (i *Informer[T]) list(from reader, query store.Query, skip func(kube.Key) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for found, err := range from.Find(query) {
			var obj T
			if err == nil {
				if skip != nil && skip(found.KeyInState()) {
					continue
				}
				obj, err = i.readFound(found)
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// readFound is read for an object of a list.
func (i *Informer[T]) readFound(found *store.Found) (obj T, err error) {
	kept, keep := i.decoded.find(i.readKey(&found.Ref), found.Kept)
	if kept != nil {
		return kept.(T), nil //nolint:forcetypeassert // the key has the type
	}
	o, err := found.Object()
	if err == nil {
		obj, err = i.decode(o)
	}
	i.keep(&found.Ref, obj, keep && err == nil)
	return obj, err
}

// keep keeps an object decoded.
func (i *Informer[T]) keep(ref *store.Ref, obj T, keep bool) {
	if keep {
		i.decoded.keep(i.readKey(ref), i.core.decodedUse, ref.Kept, obj, i.core.logger)
	}
}

func (i *Informer[T]) readKey(ref *store.Ref) readKey {
	return readKey{ref.Store(), i.object, ref.KeyInState()}
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

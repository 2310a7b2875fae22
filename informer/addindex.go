package informer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// AddIndex adds an index, as Config.Indexes does. The informer may run: AddIndex then decodes each cached object for a
// call of index.Values, without a request, while changes arrive and readers read. It returns when the index is
// complete. Until then, reads with the index return an error, as do reads of a Snapshot from before. The index remains
// until the program ends, also in later runs of the informer.
//
// An index of a view (see As) belongs to the informer and all its views. Its function receives objects of the view's
// type.
//
// Do not call AddIndex in a function that the informer calls, such as a subscriber or the Values of an index.
//
// Errors: a missing Name or Values, and an index of the same name. An object that cannot be decoded, or for which
// Values panics, is logged and is not found by the index.
func (i *Informer[T]) AddIndex(index Index[T]) error {
	if index.Name == "" || index.Values == nil {
		return fmt.Errorf("informer %q: add index %q: Name and Values are required", i.Name(), index.Name)
	}
	users := i.core.unshare() // otherwise a later user could not add one of the same name
	if err := i.core.addIndex(index.inStore(i.decoder, i.core.guard)); err != nil {
		if users > 1 {
			err = fmt.Errorf("%w: %d controllers and sources share the informer: make one of its own with informer.New",
				err, users)
		}
		return fmt.Errorf("informer %q: add index %q: %w", i.Name(), index.Name, err)
	}
	return nil
}

func (c *core) addIndex(index store.Index) error {
	c.adding.Lock()
	defer c.adding.Unlock()
	objects, err := c.beginIndex(index)
	if err != nil {
		return err
	}
	for _, kept := range objects {
		failed, first, err := kept.AddIndex(index)
		if err != nil {
			return err
		}
		if failed > 0 {
			c.logger.Warn("index lacks objects", "informer", c.name, "index", index.Name, "objects", failed, "error",
				usercode.Error(first))
		}
	}
	return nil
}

// beginIndex makes later stores have the index, and returns the present stores.
func (c *core) beginIndex(index store.Index) (objects []*store.Store, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.indexes.Load()
	if slices.ContainsFunc(old, func(other store.Index) bool { return other.Name == index.Name }) {
		return nil, errors.New("another has the same name")
	}
	all := append(slices.Clip(old), index)
	c.indexes.Store(&all)
	for _, p := range c.parts {
		objects = append(objects, p.objects())
	}
	return objects, nil
}

// inStore converts an index of objects to an index of encoded objects.
func (index Index[T]) inStore(decoder wire.Decoder[T], guard *usercode.Guard) store.Index {
	return store.Index{Name: index.Name, Values: func(o *wire.Object) (values []string, err error) {
		err = guard.Try("Values of index "+index.Name, func() error {
			obj, err := decoder.Decode(o)
			if err == nil {
				values = index.Values(obj)
			}
			return err
		})
		return values, err
	}}
}

// Index finds objects by values that a function returns for each object, such as the node of a Pod, or a reference in
// the spec.
type Index[T kube.Object] struct {
	// Name identifies the index in a Query. If it is the name of a field, such as "spec.nodeName", Values must return
	// the value of that field: client.List then answers the field selector spec.nodeName=node-1 from the informer.
	// Required.
	Name string
	// Values returns the index values of obj. The informer calls it once for each state of each object, when the state
	// arrives. It decodes the object for the call, so with an index every event costs as much CPU time as a read.
	// Values must be fast and must not read the informer. If it panics, the object is cached, but this index does not
	// find it. Required.
	Values func(obj T) []string
}

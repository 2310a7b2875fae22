package poll

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// ObjectStore is a store outside the cluster that lists its objects with versions and returns their contents one by
// one, such as a bucket of an object store, a folder of a repository, or a table. examples/objectstore has one for the
// API of S3.
type ObjectStore interface {
	// List returns all objects: their ID, Version (such as an ETag) and Keys, without Content. If the list is
	// incomplete, List must return an error.
	List(ctx context.Context) ([]Item, error)
	// Read returns the current Content of an item of List, and the Version of this content; other fields are ignored.
	// An empty Version means that of the list. found is false if the object does not exist anymore. The store must not
	// change the Content afterwards.
	Read(ctx context.Context, listed Item) (read Item, found bool, err error)
}

// FromObjectStore returns a Poller of the objects in a store with their contents. It reads only objects that are new,
// or whose Version in the list differs from that of the last content; an object without a Version is read in each poll.
// A handler reads the contents from Source.Item, if Config.KeepItems is set. Without a need for contents, use
// List(store.List), which reads none.
//
// Flow: an object that is replaced between List and Read has the new content and version. An object that is removed in
// between is missing. If one object cannot be read, the poll fails, and the next one reads all new objects again.
// Config.Timeout limits a poll, so the first poll must read all objects within it.
//
// The contents are stored until the objects are removed, and with KeepItems a second time.
func FromObjectStore(store ObjectStore) Poller { return &storePoller{store} }

// storePoller is immutable.
type storePoller struct{ store ObjectStore }

// storeToken is the state of the objects after a poll.
type storeToken struct{ items map[string]Item }

// Validate returns an error if there is no store.
func (p *storePoller) Validate() error {
	if usercode.IsNil(p.store) {
		return errors.New("the ObjectStore is nil")
	}
	return nil
}

// Poll implements Poller.
func (p *storePoller) Poll(ctx context.Context, token any) (Result, error) {
	listed, err := p.store.List(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("list the objects: %w", usercode.Error(err))
	}
	if err := validateItems(listed); err != nil { // before any object is read
		return Result{}, err
	}
	last, polled := token.(storeToken)
	next := storeToken{items: make(map[string]Item, len(listed))}
	result := Result{Items: make([]Item, 0, len(listed)), Unchanged: polled, Token: next}
	for _, item := range listed {
		before, known := last.items[item.ID]
		if known && item.Version != "" && item.Version == before.Version {
			item.Content = before.Content
		} else {
			read, found, err := p.store.Read(ctx, item)
			if err != nil {
				return Result{}, fmt.Errorf("read object %q: %w", shown(item.ID), usercode.Error(err))
			}
			if !found {
				continue
			}
			item.Version, item.Content = cmp.Or(read.Version, item.Version), read.Content
		}
		result.Items = append(result.Items, item)
		next.items[item.ID] = item
		result.Unchanged = result.Unchanged && known && sameItem(item, before)
	}
	result.Unchanged = result.Unchanged && len(next.items) == len(last.items)
	return result, nil
}

func sameItem(a, b Item) bool {
	return a.Version == b.Version && bytes.Equal(a.Content, b.Content) && slices.Equal(a.Keys, b.Keys)
}

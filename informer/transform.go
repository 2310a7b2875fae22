package informer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// newTransform returns Config.Transform as a function of encoded objects. If it fails, it returns an object that cannot
// be decoded, so that the object is neither lost nor cached unchanged: the purpose of a Transform may be to hide a
// field.
func newTransform[T kube.Object](i *Informer[T], transform func(T) error) func(*wire.Object) *wire.Object {
	encoder := wire.NewEncoder[T](i.cut)
	transformed := func(o *wire.Object) (*wire.Object, error) {
		obj, err := i.decoder.Decode(o)
		if err != nil {
			return nil, err
		}
		deletedAt := obj.GetDeletionTimestamp().DeepCopy()
		if err := transform(obj); err != nil {
			return nil, fmt.Errorf("transform %s: %w", o.Key, usercode.Error(err))
		}
		changed, err := encoder.Encode(obj)
		if err != nil {
			return nil, fmt.Errorf("transform %s: %w", o.Key, err)
		}
		if changed.Key != o.Key || changed.UID != o.UID || changed.ResourceVersion != o.ResourceVersion ||
			changed.Generation != o.Generation || changed.Deleting != o.Deleting ||
			!deletedAt.Equal(obj.GetDeletionTimestamp()) {
			return nil, fmt.Errorf("transform %s: %w", o.Key, errIdentityChanged)
		}
		changed.Manager, changed.TiedManager = o.Manager, o.TiedManager
		return changed, nil
	}
	change := func(o *wire.Object) (changed *wire.Object, err error) {
		err = i.core.guard.Try("Transform", func() error { changed, err = transformed(o); return err })
		return changed, err
	}
	var warnedAt atomic.Int64 // nanoseconds since the informer was made
	return func(o *wire.Object) *wire.Object {
		changed, err := change(o)
		if err == nil {
			return changed
		}
		log := i.core.logger.Debug
		now, last := int64(time.Since(i.core.createdAt))+1, warnedAt.Load()
		if (last == 0 || now-last >= int64(manyReasonsEvery)) && warnedAt.CompareAndSwap(last, now) {
			log = i.core.logger.Warn
		}
		log("informer keeps an object without its content", "informer", i.core.name, "key", o.Key.String(),
			"error", err)
		return wire.NewFailed(o, err)
	}
}

var errIdentityChanged = errors.New("the function must not change name, namespace, uid, resourceVersion, generation " +
	"or deletionTimestamp")

// transformedFeed changes the objects of a feed.
type transformedFeed struct {
	feed
	transform func(*wire.Object) *wire.Object
}

func (f transformedFeed) list(
	ctx context.Context, opts metav1.ListOptions, each func(*wire.Object) error,
) (metav1.ListMeta, error) {
	return f.feed.list(ctx, opts, func(o *wire.Object) error {
		if o.Key.Name == "" {
			return errNoName
		}
		return each(f.transform(o))
	})
}

func (f transformedFeed) watch(ctx context.Context, opts metav1.ListOptions) (events, error) {
	inner, err := f.feed.watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return transformedEvents{inner, f.transform}, nil
}

type transformedEvents struct {
	events
	transform func(*wire.Object) *wire.Object
}

func (e transformedEvents) next() (wire.Event, error) {
	event, err := e.events.next()
	// The state of a delete event is not cached.
	if err == nil && event.Object != nil && event.Object.Key.Name != "" &&
		(event.Type == watch.Added || event.Type == watch.Modified) {
		event.Object = e.transform(event.Object)
	}
	return event, err
}

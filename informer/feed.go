package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// feed is the source of a part's encoded objects: the API server (clusterFeed), or any other Retriever, whose objects
// are encoded (objectFeed).
type feed interface {
	// list reads one page, and calls each for every item when it arrives.
	list(ctx context.Context, opts metav1.ListOptions, each func(*wire.Object) error) (metav1.ListMeta, error)
	// watch opens a watch, which ends when ctx ends.
	watch(ctx context.Context, opts metav1.ListOptions) (events, error)
}

// events are the events of one watch.
type events interface {
	// next waits for the next event, which is valid until the next call. io.EOF means that the watch has ended, or was
	// stopped.
	next() (wire.Event, error)
	// stop ends the watch. It may be called while next waits, and more than once.
	stop()
	// join waits until the watch has ended. It must be called after the last call of next has returned. It returns
	// false if the watch does not end in time.
	join() bool
}

// slowStop is the time that a stopped watch has to close its channel.
const slowStop = 5 * time.Second

// objectFeed encodes the objects of a Retriever.
type objectFeed[T kube.Object] struct {
	retriever Retriever[T]
	encoder   wire.Encoder[T]
	guard     *usercode.Guard
}

// errWrongType is the error of a Retriever that returns objects of another type than T.
var errWrongType = errors.New("the retriever returned an object of another type")

// errNoName reports that a list or a watch contains an object without a name. Such an object is not skipped: it may be
// damaged, and its changes would be missed.
var errNoName = errors.New("an object without a name was received")

func (f objectFeed[T]) encode(obj runtime.Object) (encoded *wire.Object, err error) {
	typed, ok := obj.(T)
	if ok && reflect.ValueOf(typed).IsNil() {
		return nil, fmt.Errorf("the retriever returned a nil %T", obj)
	}
	if !ok {
		var want T
		return nil, fmt.Errorf("%w: a %T where a %T was expected", errWrongType, obj, want)
	}
	err = f.guard.Try("encoding of an object", func() error { encoded, err = f.encoder.Encode(typed); return err })
	return encoded, err
}

func (f objectFeed[T]) list(
	ctx context.Context, opts metav1.ListOptions, each func(*wire.Object) error,
) (metav1.ListMeta, error) {
	var list runtime.Object
	err := f.guard.Try("List of the Retriever", func() (err error) {
		list, err = f.retriever.List(ctx, opts)
		return err
	})
	if err != nil {
		return metav1.ListMeta{}, err
	}
	if usercode.IsNil(list) {
		return metav1.ListMeta{}, errors.New("the retriever returned nil where a list was expected")
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return metav1.ListMeta{}, fmt.Errorf("the retriever returned a %T where a list was expected: %w", list, err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		obj, err := f.encode(item)
		if err != nil {
			return err
		}
		return each(obj)
	})
	return metav1.ListMeta{
		ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(),
		RemainingItemCount: about.GetRemainingItemCount(),
	}, err
}

func (f objectFeed[T]) watch(ctx context.Context, opts metav1.ListOptions) (events, error) {
	var inner watch.Interface
	err := f.guard.Try("Watch of the Retriever", func() (err error) {
		inner, err = f.retriever.Watch(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	if usercode.IsNil(inner) {
		return nil, errors.New("the retriever returned nil where a watch was expected")
	}
	return &objectEvents[T]{feed: f, inner: inner, stopped: make(chan struct{})}, nil
}

// objectEvents encodes the objects of a watch.
type objectEvents[T kube.Object] struct {
	feed    objectFeed[T]
	inner   watch.Interface
	once    sync.Once
	stopped chan struct{}
}

func (e *objectEvents[T]) next() (wire.Event, error) {
	if isClosed(e.stopped) {
		return wire.Event{}, io.EOF
	}
	select {
	case <-e.stopped:
		return wire.Event{}, io.EOF
	case event, open := <-e.inner.ResultChan():
		if !open {
			return wire.Event{}, io.EOF
		}
		if event.Type == watch.Error {
			return wire.Event{Type: watch.Error, Status: statusOf(apierrors.FromObject(event.Object))}, nil
		}
		feed := e.feed
		if event.Type == watch.Bookmark {
			feed.encoder = wire.NewEncoder[T](nil) // Cut must not remove the annotation that ends a streamed list
		}
		obj, err := feed.encode(event.Object)
		return wire.Event{Type: event.Type, Object: obj}, err
	}
}

func (e *objectEvents[T]) stop() {
	e.once.Do(func() { close(e.stopped) })
	_ = e.feed.guard.Call("Stop of the Retriever's watch", e.inner.Stop, nil)
}

// join waits until the watch has closed its channel. watch.Interface requires that a watch closes its channel when it
// has ended.
func (e *objectEvents[T]) join() bool {
	timer := time.NewTimer(slowStop)
	defer timer.Stop()
	for {
		select {
		case _, open := <-e.inner.ResultChan(): // the remaining events are dropped
			if !open {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}

// statusOf converts an error to the Status that the API server would send.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status := known.Status()
		return &status
	}
	return &apierrors.NewInternalError(err).ErrStatus
}

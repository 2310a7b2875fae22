package informer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// objectList is a list of objects of type T. The Retrievers of Retrieve return it.
type objectList[T kube.Object] struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []T
}

// DeepCopyObject implements runtime.Object.
func (l *objectList[T]) DeepCopyObject() runtime.Object {
	copied := &objectList[T]{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	for _, item := range l.Items {
		copied.Items = append(copied.Items, item.DeepCopyObject().(T))
	}
	return copied
}

// decoded returns a feed of r's objects and a decoder for them.
func (r *clusterRetriever[T]) decoded() (feed, wire.Decoder[T], error) {
	decoder, err := wire.NewDecoder[T](r.kind)
	return r.feed(nil, new(atomic.Int64)), decoder, errors.Join(r.problem, err)
}

// List implements Retriever. It returns an *objectList[T].
func (r *clusterRetriever[T]) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	feed, decoder, err := r.decoded()
	if err != nil {
		return nil, err
	}
	list := &objectList[T]{TypeMeta: metav1.TypeMeta{APIVersion: r.kind.GroupVersion().String(), Kind: r.kind.Kind +
		"List"}}
	list.ListMeta, err = feed.list(ctx, opts, func(o *wire.Object) error {
		obj, err := decoder.Decode(o)
		list.Items = append(list.Items, obj)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Watch implements Retriever.
func (r *clusterRetriever[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	feed, decoder, err := r.decoded()
	if err != nil {
		return nil, err
	}
	events, err := feed.watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	w := &decodedWatch{events: events, out: make(chan watch.Event), stopped: make(chan struct{})}
	go func() { // ends with the watch; the closed channel shows the end
		defer close(w.out)
		defer events.join()
		for w.hand(nextDecoded(events, decoder)) {
		}
	}()
	return w, nil
}

// nextDecoded returns the next event with its object decoded. If the object cannot be decoded, it returns an error.
func nextDecoded[T kube.Object](events events, decoder wire.Decoder[T]) (watch.Event, error) {
	event, err := events.next()
	if err != nil {
		return watch.Event{}, err
	}
	if event.Type == watch.Error {
		return watch.Event{Type: watch.Error, Object: event.Status}, nil
	}
	obj, err := decoder.Decode(event.Object)
	if err != nil {
		return watch.Event{}, err
	}
	return watch.Event{Type: event.Type, Object: obj}, nil
}

// decodedWatch is a watch of decoded objects.
type decodedWatch struct {
	events  events
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

// ResultChan implements watch.Interface.
func (w *decodedWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *decodedWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.events.stop()
}

// hand sends an event, or an error as an event. It returns false after the last event.
func (w *decodedWatch) hand(event watch.Event, err error) bool {
	if err != nil {
		if endsStream(err) {
			return false
		}
		event = watch.Event{Type: watch.Error, Object: statusOf(err)}
	}
	select {
	case w.out <- event:
		return err == nil
	case <-w.stopped:
		return false
	}
}

package informer

import (
	"context"
	"errors"
	"io"
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
	return watch.NewStreamWatcher(decodedEvents[T]{events, decoder}, statusReporter{}), nil
}

// decodedEvents decodes the objects of events. It implements watch.Decoder.
type decodedEvents[T kube.Object] struct {
	events  events
	decoder wire.Decoder[T]
}

// Close implements watch.Decoder.
func (d decodedEvents[T]) Close() { d.events.stop() }

// Decode implements watch.Decoder.
func (d decodedEvents[T]) Decode() (watch.EventType, runtime.Object, error) {
	event, err := d.events.next()
	switch {
	case err != nil && endsStream(err):
		return "", nil, io.EOF
	case err != nil:
		return "", nil, err
	case event.Type == watch.Error:
		return watch.Error, event.Status, nil
	}
	obj, err := d.decoder.Decode(event.Object)
	return event.Type, obj, err
}

// statusReporter implements watch.Reporter.
type statusReporter struct{}

// AsObject implements watch.Reporter.
func (statusReporter) AsObject(err error) runtime.Object { return statusOf(err) }

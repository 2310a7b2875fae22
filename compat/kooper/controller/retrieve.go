package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// Retriever lists and watches the objects of a controller. All have one Go type.
type Retriever interface {
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// RetrieverFromListerWatcher returns a Retriever that uses lw. It passes its context on if lw accepts one. A nil lw is
// an error.
func RetrieverFromListerWatcher(lw cache.ListerWatcher) (Retriever, error) {
	if usercode.IsNil(lw) {
		return nil, errors.New("listerWatcher can't be nil")
	}
	return listerWatcher{cache.ToListerWatcherWithContext(lw)}, nil
}

// MustRetrieverFromListerWatcher is RetrieverFromListerWatcher, and panics in case of an error.
func MustRetrieverFromListerWatcher(lw cache.ListerWatcher) Retriever {
	r, err := RetrieverFromListerWatcher(lw)
	if err != nil {
		panic(err)
	}
	return r
}

type listerWatcher struct {
	from cache.ListerWatcherWithContext
}

func (l listerWatcher) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return l.from.ListWithContext(ctx, options)
}

func (l listerWatcher) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return l.from.WatchWithContext(ctx, options)
}

// objects is a Retriever of the engine. The Go type of its objects is known only when the first one arrives, so it
// converts them to unstructured objects, and restore converts them back.
type objects struct {
	from     Retriever
	itemType atomic.Pointer[reflect.Type] // nil: not known yet
}

// Describe implements the engine's Retriever. Lists are not streamed: client-go's fake clients do not support it, and a
// program's Retriever cannot say whether it does.
func (o *objects) Describe() informer.Description[*unstructured.Unstructured] {
	return informer.Description[*unstructured.Unstructured]{}
}

// List implements the engine's Retriever.
func (o *objects) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := o.from.List(ctx, options)
	if err != nil {
		return nil, err
	}
	from, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("the Retriever returned a %T: %w", list, err)
	}
	converted := &unstructured.UnstructuredList{Object: map[string]any{"kind": "List", "apiVersion": "v1"}}
	converted.SetResourceVersion(from.GetResourceVersion())
	converted.SetContinue(from.GetContinue())
	converted.SetRemainingItemCount(from.GetRemainingItemCount())
	return converted, meta.EachListItem(list, func(item runtime.Object) error {
		u, err := o.convert(item)
		if err == nil {
			converted.Items = append(converted.Items, *u)
		}
		return err
	})
}

// Watch implements the engine's Retriever.
func (o *objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	from, err := o.from.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	if usercode.IsNil(from) {
		return nil, errors.New("the Retriever returned no watch")
	}
	return watch.Filter(from, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Error {
			return event, true
		}
		u, err := o.convert(event.Object)
		if err != nil {
			return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}, true
		}
		event.Object = u
		return event, true
	}), nil
}

func (o *objects) convert(obj runtime.Object) (*unstructured.Unstructured, error) {
	if usercode.IsNil(obj) {
		return nil, errors.New("the Retriever returned a nil object")
	}
	t := reflect.TypeOf(obj)
	if o.itemType.CompareAndSwap(nil, &t); *o.itemType.Load() != t {
		return nil, fmt.Errorf("the Retriever returned a %s after a %s: a controller needs objects of one type", t,
			*o.itemType.Load())
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert a %s: %w", t, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// restore returns the object as the Retriever returned it.
func (o *objects) restore(u *unstructured.Unstructured) (runtime.Object, error) {
	t := *o.itemType.Load() // set, because u was converted
	if t == reflect.TypeFor[*unstructured.Unstructured]() {
		return u, nil
	}
	obj, ok := reflect.TypeAssert[runtime.Object](reflect.New(t.Elem()))
	if !ok {
		return nil, fmt.Errorf("%s is not a runtime.Object", t)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return nil, fmt.Errorf("convert an object to %s: %w", t, err)
	}
	return obj, nil
}

package controllerruntime

import (
	"errors"
	"fmt"
	"iter"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// engineInformer is an informer of the engine whose objects are read as client.Objects.
type engineInformer interface {
	informer.Any
	// get returns a new copy of an object, with its kind.
	get(key kube.Key) (obj client.Object, found bool, err error)
	// list iterates over new copies of objects, with their kinds.
	list(query informer.Query) iter.Seq2[client.Object, error]
	// addIndex adds an index.
	addIndex(name string, values toolscache.IndexFunc) error
	// indexError returns the error of an index function for one of the objects for which it failed, if there is one.
	indexError(name string, values toolscache.IndexFunc) error
	// decode returns the object of a stored state.
	decode(state store.Kept) (client.Object, error)
	// empty returns a new object.
	empty() client.Object
}

// handle is what the engine sees of an informer.
type handle = cache.Holder[cache.Informer]

// modelled is an informer of encoded objects. Its methods return *wire.EncodedObject, but NewObject returns their Go
// type, with which the engine reads protobuf, to find out what writes change.
type modelled struct {
	cache.Informer
	empty func() client.Object
}

// NewObject implements cache.Informer.
func (m *modelled) NewObject() (obj kube.Object, whole bool) {
	_, whole = m.Informer.NewObject()
	return m.empty(), whole
}

// engineInformerOf implements engineInformer with an informer of T.
type engineInformerOf[T kube.Object] struct {
	handle
	*informer.Informer[T]
	view    *informer.Informer[kube.Object] // has the same objects, decoded
	model   reflect.Type                    // of which objects are read
	decoder wire.Decoder[kube.Object]
	decoded func(wire.Decoder[kube.Object], T) (client.Object, error)
}

// settings are those of an informer that controller-runtime passes in.
type settings struct {
	transform toolscache.TransformFunc
	onError   func(error)
}

// newEngineInformer returns an informer of the objects of a selection, in the form of model: typed, unstructured or
// metadata.
func (f *informerFactory) newEngineInformer(
	selection kube.Selection, model runtime.Object, set settings,
) (engineInformer, error) {
	switch model.(type) {
	case runtime.Unstructured: // protobuf has no names of fields
		untyped := &unstructured.Unstructured{}
		return newEngineInformerOf(f.json, selection, untyped, set, unchanged[*unstructured.Unstructured])
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		partial := &metav1.PartialObjectMetadata{}
		return newEngineInformerOf(f.preferred, selection, partial, set, unchanged[*metav1.PartialObjectMetadata])
	}
	registered, err := f.scheme.New(selection.Kind)
	if err != nil {
		return nil, err
	}
	typed, ok := registered.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a %T is not an object with metadata", registered)
	}
	cluster := f.json
	if encoded, err := wire.FromObject(typed, nil); err == nil && encoded.Format == wire.Protobuf {
		cluster = f.preferred
	}
	return newEngineInformerOf(cluster, selection, typed, set,
		func(decoder wire.Decoder[kube.Object], obj *wire.EncodedObject) (client.Object, error) {
			return decoder.Decode(obj.Encoded)
		})
}

func unchanged[T kube.Object](_ wire.Decoder[kube.Object], obj T) (client.Object, error) {
	return obj, nil
}

func newEngineInformerOf[T kube.Object](
	cluster *kube.Cluster, selection kube.Selection, model client.Object, set settings,
	decoded func(wire.Decoder[kube.Object], T) (client.Object, error),
) (engineInformer, error) {
	s := &engineInformerOf[T]{
		model: reflect.TypeOf(model).Elem(), decoder: wire.NewDecoderInto(selection.Kind, model), decoded: decoded,
	}
	config := informer.Config[T]{
		Retriever: informer.RetrieveSelected[T](cluster, selection), OnError: set.onError,
		KeepManagedFields: !stripsManagedFields(set.transform),
	}
	if set.transform != nil && config.KeepManagedFields {
		config.Transform = func(obj T) error { return s.transform(obj, set.transform) }
	}
	var err error
	if s.Informer, err = informer.New(config); err != nil {
		return nil, err
	}
	s.view = cache.Of(s.Informer).As(s.decoder).(*informer.Informer[kube.Object]) //nolint:forcetypeassert // its result
	s.handle = cache.Hold[cache.Informer](&modelled{cache.Of(s.Informer), s.empty})
	return s, nil
}

func (s *engineInformerOf[T]) get(key kube.Key) (client.Object, bool, error) {
	obj, found, err := s.view.Get(key)
	if found {
		s.setKind(obj)
	}
	return obj, found, err
}

func (s *engineInformerOf[T]) list(query informer.Query) iter.Seq2[client.Object, error] {
	return func(yield func(client.Object, error) bool) {
		for obj, err := range s.view.List(query) {
			if err == nil {
				s.setKind(obj)
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// setKind sets the kind of an object that is read, as controller-runtime does.
func (s *engineInformerOf[T]) setKind(obj kube.Object) {
	obj.GetObjectKind().SetGroupVersionKind(s.Kind())
}

func (s *engineInformerOf[T]) addIndex(name string, values toolscache.IndexFunc) error {
	return s.AddIndex(informer.Index[T]{Name: name, Values: func(encoded T) []string {
		found, err := s.valuesOf(encoded, values)
		if err != nil {
			return []string{failedValue}
		}
		return found
	}})
}

// failedValue is the value, in each index, of the objects for which the index function failed. No field has it.
const failedValue = "\x00"

// valuesOf returns the values of an object in an index.
func (s *engineInformerOf[T]) valuesOf(encoded T, values toolscache.IndexFunc) ([]string, error) {
	obj, err := s.decoded(s.decoder, encoded)
	if err != nil {
		return nil, err
	}
	return values(obj)
}

func (s *engineInformerOf[T]) indexError(name string, values toolscache.IndexFunc) error {
	for encoded, err := range s.List(informer.Query{Index: name, Value: failedValue}) {
		if err != nil {
			return err
		}
		key := "an object"
		if obj, err := s.decoded(s.decoder, encoded); err == nil {
			key = kube.KeyOf(obj).String()
		}
		if _, err = s.valuesOf(encoded, values); err == nil {
			err = errors.New("the index function failed when the object arrived")
		}
		return fmt.Errorf("list by index %s: the values of %s: %w", name, key, err)
	}
	return nil
}

func (s *engineInformerOf[T]) decode(state store.Kept) (obj client.Object, err error) {
	ref := state.Ref()
	err = ref.Read(func(o *wire.Object) error {
		encoded, err := cache.Decode[T](cache.Of(s.Informer), o)
		if err == nil {
			obj, err = s.decoded(s.decoder, encoded)
		}
		return err
	})
	return obj, err
}

func (s *engineInformerOf[T]) empty() client.Object {
	return reflect.New(s.model).Interface().(client.Object)
}

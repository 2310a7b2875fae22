package controllerruntime

import (
	"fmt"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// source is an informer of the engine whose objects are read as client.Objects.
type source interface {
	informer.Any
	// get returns a new copy of an object, with its kind.
	get(key kube.Key) (obj client.Object, found bool, err error)
	// list iterates over new copies of objects, with their kinds.
	list(query informer.Query) iter.Seq2[client.Object, error]
	// addIndex adds an index.
	addIndex(name string, values toolscache.IndexFunc) error
	// checkIndex returns the error of an object whose values in an index are not known, if there is one.
	checkIndex(name string, values toolscache.IndexFunc) error
	// decode returns the object of a stored state.
	decode(state store.Kept) (client.Object, error)
	// empty returns a new object.
	empty() client.Object
}

// sourceOf implements source with an informer of T.
type sourceOf[T kube.Object] struct {
	*informer.Informer[T]
	decoder wire.Decoder[kube.Object]
	decoded func(wire.Decoder[kube.Object], T) (client.Object, error)
}

// settings are those of a source that controller-runtime passes in.
type settings struct {
	transform toolscache.TransformFunc
	onError   func(error)
}

// newSource returns the source of the objects of a selection, in the form of model: typed, unstructured or metadata.
func (f *informers) newSource(selection kube.Selection, model runtime.Object, set settings) (source, error) {
	config := rest.CopyConfig(f.config)
	switch model.(type) {
	case runtime.Unstructured:
		config.AcceptContentTypes = runtime.ContentTypeJSON // protobuf has no names of fields
		return newSourceOf(f, config, selection, &unstructured.Unstructured{}, set, asIs[*unstructured.Unstructured])
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		partial := &metav1.PartialObjectMetadata{}
		return newSourceOf(f, config, selection, partial, set, asIs[*metav1.PartialObjectMetadata])
	}
	registered, err := f.scheme.New(selection.Kind)
	if err != nil {
		return nil, err
	}
	typed, ok := registered.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a %T is not an object with metadata", registered)
	}
	if config.AcceptContentTypes == "" && config.ContentType != "" {
		config.AcceptContentTypes = config.ContentType + "," + runtime.ContentTypeJSON
	}
	if encoded, err := wire.FromObject(typed, nil); config.AcceptContentTypes == "" && err == nil &&
		encoded.Format == wire.Protobuf {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return newSourceOf(f, config, selection, typed, set,
		func(into wire.Decoder[kube.Object], obj *wire.EncodedObject) (client.Object, error) {
			return into.Decode(obj.Encoded)
		})
}

func asIs[T kube.Object](_ wire.Decoder[kube.Object], obj T) (client.Object, error) { return obj, nil }

func newSourceOf[T kube.Object](
	f *informers, config *rest.Config, selection kube.Selection, model client.Object, set settings,
	decoded func(wire.Decoder[kube.Object], T) (client.Object, error),
) (source, error) {
	cluster, err := kube.Connect(config)
	if err != nil {
		return nil, err
	}
	cluster.SetLogger(f.logger)
	s := &sourceOf[T]{decoder: wire.NewDecoderInto(selection.Kind, model), decoded: decoded}
	informerConfig := informer.Config[T]{
		Retriever: informer.RetrieveSelected[T](cluster, selection), OnError: set.onError,
		KeepManagedFields: !stripsManagedFields(set.transform),
	}
	if set.transform != nil && informerConfig.KeepManagedFields {
		informerConfig.Transform = func(obj T) error { return s.transform(obj, set.transform) }
	}
	s.Informer, err = informer.New(informerConfig)
	return s, err
}

func (s *sourceOf[T]) get(key kube.Key) (client.Object, bool, error) {
	encoded, found, err := s.Get(key)
	if !found || err != nil {
		return nil, false, err
	}
	obj, err := s.withKind(encoded)
	return obj, err == nil, err
}

func (s *sourceOf[T]) list(query informer.Query) iter.Seq2[client.Object, error] {
	return func(yield func(client.Object, error) bool) {
		for encoded, err := range s.List(query) {
			var obj client.Object
			if err == nil {
				obj, err = s.withKind(encoded)
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// withKind decodes an object that is read. controller-runtime sets the kind of such objects.
func (s *sourceOf[T]) withKind(encoded T) (client.Object, error) {
	obj, err := s.decoded(s.decoder, encoded)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(s.Kind())
	}
	return obj, err
}

func (s *sourceOf[T]) addIndex(name string, values toolscache.IndexFunc) error {
	return s.AddIndex(informer.Index[T]{Name: name, Values: func(encoded T) []string {
		of, err := s.values(encoded, values)
		if err != nil {
			return []string{withoutValues}
		}
		return of
	}})
}

// withoutValues is the value, in each index, of objects whose values are not known. No field has it.
const withoutValues = "\x00"

// values returns the values of an object in an index. A panic is an error.
func (s *sourceOf[T]) values(encoded T, values toolscache.IndexFunc) (of []string, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the index function panicked: %v", reason)
		}
	}()
	obj, err := s.decoded(s.decoder, encoded)
	if err != nil {
		return nil, err
	}
	return values(obj)
}

// checkIndex returns the error of an object whose values in an index are not known, if there is one.
func (s *sourceOf[T]) checkIndex(name string, values toolscache.IndexFunc) error {
	for encoded, err := range s.List(informer.Query{Index: name, Value: withoutValues}) {
		if err != nil {
			return err
		}
		if _, err := s.values(encoded, values); err != nil {
			key := "an object"
			if obj, err := s.decoded(s.decoder, encoded); err == nil {
				key = kube.KeyOf(obj).String()
			}
			return fmt.Errorf("list by index %s: the values of %s: %w", name, key, err)
		}
	}
	return nil
}

func (s *sourceOf[T]) decode(state store.Kept) (obj client.Object, err error) {
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

func (s *sourceOf[T]) empty() client.Object {
	obj, err := s.decoder.Decode(&wire.Object{Format: wire.JSON, Bytes: []byte("{}")})
	if err != nil {
		return &metav1.PartialObjectMetadata{} // a type with user-written methods
	}
	return obj
}

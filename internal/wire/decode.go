package wire

import (
	"cmp"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Decoder decodes Objects of one kind into T. It is safe for concurrent use.
type Decoder[T kube.Object] struct {
	kind schema.GroupVersionKind
	// twin returns a typed object, through which protobuf is decoded for an unstructured T.
	twin func() kube.Object
	// proto is true if T, or the result of twin, can be decoded from protobuf.
	proto bool
	// empty returns a new object.
	empty func() T
}

// NewDecoder returns a Decoder for objects of the kind. Unstructured and metadata-only objects get it as apiVersion and
// kind, unless it is empty. T is a pointer to a struct.
func NewDecoder[T kube.Object](kind schema.GroupVersionKind) (Decoder[T], error) {
	return NewDecoderVia[T](kind, nil)
}

// NewDecoderVia is like NewDecoder for T = *unstructured.Unstructured and objects that may be protobuf: they are
// decoded into the result of twin, a new typed object of the kind, and converted.
func NewDecoderVia[T kube.Object](kind schema.GroupVersionKind, twin func() kube.Object) (Decoder[T], error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return Decoder[T]{}, fmt.Errorf("make a decoder for %s: %s is not a pointer to a struct", kind.Kind, t)
	}
	if !kind.Empty() && (kind.Kind == "" || kind.Version == "") {
		return Decoder[T]{}, fmt.Errorf("make a decoder for %s: the kind %q is incomplete: it needs kind and version",
			t, kind)
	}
	if twin != nil {
		t = reflect.TypeOf(twin())
	}
	return Decoder[T]{kind: kind, twin: twin, proto: isMessage(t), empty: apiobject.New[T]}, nil
}

// Type returns the Go type of the objects.
func (d Decoder[T]) Type() reflect.Type { return reflect.TypeOf(d.empty()) }

// guarded calls f and returns its panics as errors, because T may have user-written methods.
func guarded(name string, f func() error) (err error) {
	if panicked := usercode.Recover(name, func() { err = f() }); panicked != nil {
		return panicked
	}
	return err
}

// Decode returns a new T that shares no memory with o. A panic in T's methods is returned as an error.
func (d Decoder[T]) Decode(o *Object) (T, error) {
	obj := d.empty()
	if err := guarded("the decoding of an object", func() error { return d.decode(o, obj) }); err != nil {
		var none T
		return none, fmt.Errorf("decode %s from %s as %T: %w", o.Key, o.Format, obj, err)
	}
	return obj, nil
}

func (d Decoder[T]) decode(o *Object, obj kube.Object) error {
	if o.Format == Failed {
		return o.failure()
	}
	if untyped, err := d.decodeUntyped(o, obj); untyped {
		return err
	}
	_, onlyMetadata := obj.(*metav1.PartialObjectMetadata)
	if err := decodeTyped(o, obj, d.proto || onlyMetadata); err != nil {
		return err
	}
	switch {
	case !onlyMetadata:
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	case !d.kind.Empty():
		obj.GetObjectKind().SetGroupVersionKind(d.kind)
	}
	return nil
}

func decodeTyped(o *Object, obj kube.Object, proto bool) error {
	m, ok := obj.(message)
	switch {
	case o.Format == JSON:
		return utiljson.Unmarshal(o.Bytes, obj)
	case o.Format != Protobuf:
		return fmt.Errorf("unknown format %d", o.Format)
	case !ok || !proto:
		return fmt.Errorf("%T has no protobuf encoding: ask the API server for JSON", obj)
	}
	return m.Unmarshal(o.Bytes)
}

// decodeUntyped decodes o if the Go type of obj does not define the fields.
func (d Decoder[T]) decodeUntyped(o *Object, obj kube.Object) (untyped bool, err error) {
	switch into := obj.(type) {
	case *unstructured.Unstructured:
		return true, d.decodeUnstructured(o, into)
	case *EncodedObject:
		into.Encoded = o.Clone()
		return true, nil
	}
	return false, nil
}

func (d Decoder[T]) decodeUnstructured(o *Object, u *unstructured.Unstructured) error {
	if o.Format == Protobuf {
		if d.twin == nil {
			return fmt.Errorf("protobuf contains no field names: use NewDecoderVia, or request JSON from " +
				"the API server")
		}
		twin := d.twin()
		if err := decodeTyped(o, twin, d.proto); err != nil {
			return err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(twin)
		if err != nil {
			return fmt.Errorf("convert a %T: %w", twin, err)
		}
		u.Object = content
		if !d.kind.Empty() {
			u.SetGroupVersionKind(d.kind)
		}
		return nil
	}
	if err := utiljson.Unmarshal(o.Bytes, &u.Object); err != nil {
		return err
	}
	if metadata, ok := u.Object["metadata"].(map[string]any); ok {
		delete(metadata, nameApplied)
	}
	if !d.kind.Empty() {
		u.SetKind(cmp.Or(u.GetKind(), d.kind.Kind))
		u.SetAPIVersion(cmp.Or(u.GetAPIVersion(), d.kind.GroupVersion().String()))
	}
	return nil
}

// Content returns the fields of an object. JSON is decoded directly. Protobuf contains no field names: twin returns a
// new typed object of the kind, which defines them. JSON does not need twin.
func Content(o *Object, twin func() kube.Object) (map[string]any, error) {
	decoder, err := NewDecoderVia[*unstructured.Unstructured](schema.GroupVersionKind{}, twin)
	if err != nil {
		return nil, fmt.Errorf("read the fields of %s: %w", o.Key, err)
	}
	u, err := decoder.Decode(o)
	if err != nil {
		return nil, fmt.Errorf("read the fields of %s: %w", o.Key, err)
	}
	return u.Object, nil
}

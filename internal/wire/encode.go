package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/kube"
)

// message is implemented by generated protobuf types of Kubernetes.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// SupportsProtobuf reports whether T can be decoded from protobuf, so that a client for it may request that format. T
// must have its own generated methods Marshal and Unmarshal. Methods that a custom resource's type inherits from an
// embedded field do not count, because they do not encode the whole object.
func SupportsProtobuf[T kube.Object]() bool {
	return isMessage(reflect.TypeFor[T]())
}

// isMessage reports whether t, a pointer to a struct, encodes itself as protobuf.
func isMessage(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return false
	}
	outer, ok := reflect.TypeAssert[message](reflect.New(t.Elem()))
	if !ok {
		return false
	}
	named, ok := outer.(metav1.Object)
	if !ok || embedsPointer(t.Elem()) {
		return false
	}
	const name = "probe"
	named.SetName(name)
	encoded, err := outer.Marshal()
	if err != nil {
		return false
	}
	// Inherited methods of an embedded ObjectMeta or TypeMeta fail this test: the name is not in the object's metadata.
	meta, err := decodeProtoMetadata(encoded)
	if err != nil || meta.Name != name {
		return false
	}
	// Inherited methods of an embedded object fail this test: its encoding is the whole encoding of the outer one.
	for f, value := range reflect.ValueOf(outer).Elem().Fields() {
		if !f.Anonymous || !f.IsExported() {
			continue
		}
		if m, ok := reflect.TypeAssert[message](value.Addr()); ok {
			if inner, err := m.Marshal(); err == nil && bytes.Equal(inner, encoded) {
				return false
			}
		}
	}
	return true
}

// embedsPointer reports whether a struct embeds a pointer. Generators do not create such structs, and their methods may
// be called on a nil pointer.
func embedsPointer(t reflect.Type) bool {
	for f := range t.Fields() {
		if f.Anonymous && (f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Interface) {
			return true
		}
	}
	return false
}

// FromObject encodes a decoded object: as protobuf if the type supports it, otherwise as JSON. It does not change the
// object. It removes the fields in cut. The kind of an unstructured object may be missing. The TypeMeta of typed
// objects is kept only in JSON.
func FromObject(obj kube.Object, cut *Cut) (*Object, error) {
	return encode(obj, cut, obj != nil && isMessage(reflect.TypeOf(obj)))
}

// Encoder is FromObject for many objects of one type: it checks only once whether the type supports protobuf.
type Encoder[T kube.Object] struct {
	cut   *Cut
	proto bool
}

// NewEncoder returns an Encoder that removes the fields in cut.
func NewEncoder[T kube.Object](cut *Cut) Encoder[T] {
	return Encoder[T]{cut: cut, proto: SupportsProtobuf[T]()}
}

// Encode is FromObject.
func (e Encoder[T]) Encode(obj T) (*Object, error) { return encode(obj, e.cut, e.proto) }

func encode(obj kube.Object, cut *Cut, proto bool) (*Object, error) {
	p := parser{cut: cut}
	if err := guarded("the encoding of an object", func() error { return p.fromObject(obj, proto) }); err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	return &p.obj, nil
}

func (p *parser) fromObject(obj kube.Object, proto bool) error {
	if obj == nil {
		return errors.New("the object is nil")
	}
	if encoded, ok := obj.(*EncodedObject); ok {
		p.obj = *encoded.Encoded
		return nil
	}
	var value any = obj
	if u, ok := obj.(runtime.Unstructured); ok {
		value, proto = u.UnstructuredContent(), false
	}
	if proto {
		if err := p.cut.checkProto(); err != nil {
			return err
		}
		data, err := obj.(message).Marshal()
		if err != nil {
			return err
		}
		return p.parseProto(data)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return p.parseJSON(data)
}

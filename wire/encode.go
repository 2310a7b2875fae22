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

// message is what protobuf types generated for Kubernetes have.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// SupportsProtobuf tells whether T can be decoded from protobuf, and a client for it may
// ask for that format. T has to have the generated methods Marshal and Unmarshal of its
// own: a custom resource's type may have got those of an embedded field, which are not
// about the whole object, and do not count.
func SupportsProtobuf[T kube.Object]() bool {
	return isMessage(reflect.TypeFor[T]())
}

// isMessage tells whether t, a pointer to a struct, encodes itself as protobuf.
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
	// Methods of an embedded ObjectMeta or TypeMeta fail this: their name is not where
	// an object has it.
	meta, err := decodeProtoMetadata(encoded)
	if err != nil || meta.Name != name {
		return false
	}
	// Methods of an embedded object fail this: its encoding is all of the outer one's.
	v := reflect.ValueOf(outer).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.Anonymous || !f.IsExported() {
			continue
		}
		if m, ok := reflect.TypeAssert[message](v.Field(i).Addr()); ok {
			if inner, err := m.Marshal(); err == nil && bytes.Equal(inner, encoded) {
				return false
			}
		}
	}
	return true
}

// embedsPointer is true for structs that no generator makes, and whose methods may be
// those of a nil pointer.
func embedsPointer(t reflect.Type) bool {
	for f := range structFields(t) {
		if f.Anonymous && (f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Interface) {
			return true
		}
	}
	return false
}

// FromObject encodes a decoded object: types with a protobuf encoding of their own in
// that one, everything else as JSON. The object is not changed. What cut says is left
// out. The kind of an unstructured object may be missing; typed objects keep what their
// TypeMeta says only in JSON.
func FromObject(obj kube.Object, cut *Cut) (*Object, error) {
	return encode(obj, cut, obj != nil && isMessage(reflect.TypeOf(obj)))
}

// Encoder is FromObject for many objects of one type: whether that has a protobuf encoding
// is found out once.
type Encoder[T kube.Object] struct {
	cut   *Cut
	proto bool
}

// NewEncoder returns an Encoder that leaves out what cut says.
func NewEncoder[T kube.Object](cut *Cut) Encoder[T] {
	return Encoder[T]{cut: cut, proto: SupportsProtobuf[T]()}
}

// Encode is FromObject.
func (e Encoder[T]) Encode(obj T) (*Object, error) { return encode(obj, e.cut, e.proto) }

func encode(obj kube.Object, cut *Cut, proto bool) (*Object, error) {
	p := parser{cut: cut}
	if err := p.fromObject(obj, proto); err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	return &p.obj, nil
}

func (p *parser) fromObject(obj kube.Object, proto bool) error {
	if obj == nil {
		return errors.New("there is no object")
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		content := u.UnstructuredContent()
		data, err := json.Marshal(content)
		if err != nil {
			return err
		}
		return p.parseJSON(data)
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
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return p.parseJSON(data)
}

package wire

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Format is the encoding of an object's bytes.
type Format uint8

// The formats.
const (
	// Protobuf is the object's own message, without the envelope ("k8s\0" and runtime.Unknown) of the response.
	Protobuf Format = iota + 1
	// JSON is the object as one JSON value.
	JSON
	// Failed is an object that is unknown except for its metadata, in JSON, because its processing failed: see
	// NewFailed.
	Failed
)

// String returns the format's name.
func (f Format) String() string {
	if f < Protobuf || f > Failed {
		return fmt.Sprintf("Format(%d)", uint8(f))
	}
	return [...]string{Protobuf: "protobuf", JSON: "JSON", Failed: "failed"}[f]
}

// Object is the bytes of one object, without the fields that were cut.
//
// An Object of an EventReader or a list is valid until the next one is read, because its Bytes are in a reused buffer.
// The strings may be kept.
type Object struct {
	Format Format
	Bytes  []byte

	Key             kube.Key
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Deleting reports whether the object has a deletionTimestamp.
	Deleting bool
	// Manager is the field manager that wrote the object last according to metadata.managedFields, which have times in
	// seconds. It is set for objects from the API server, even if managedFields are cut. A store does not keep it.
	// Empty: unknown.
	Manager string
	// TiedManager is another field manager that wrote the object in the same second, one of those that may have written
	// it last instead. Empty: none.
	TiedManager string
}

// Clone returns a copy of o that shares no memory with it and stays valid.
func (o *Object) Clone() *Object {
	c := *o
	c.Bytes = slices.Clone(o.Bytes)
	return &c
}

// The following methods parse Bytes at each call. The results belong to the caller.

// Labels returns the object's labels, or nil.
func (o *Object) Labels() map[string]string {
	return o.stringMap(numLabels, nameLabels, func(m *metav1.ObjectMeta) map[string]string { return m.Labels })
}

// Annotations returns the object's annotations, or nil.
func (o *Object) Annotations() map[string]string {
	return o.stringMap(numAnnotations, nameAnnotations,
		func(m *metav1.ObjectMeta) map[string]string { return m.Annotations })
}

// OwnerReferences returns the object's owner references, or nil.
func (o *Object) OwnerReferences() []metav1.OwnerReference {
	return listOf(o, numOwnerReferences, nameOwnerReferences,
		func(encoded []byte, into *metav1.OwnerReference) bool { return into.Unmarshal(encoded) == nil },
		func(m *metav1.ObjectMeta) []metav1.OwnerReference { return m.OwnerReferences })
}

// Finalizers returns the object's finalizers, or nil.
func (o *Object) Finalizers() []string {
	return listOf(o, numFinalizers, nameFinalizers, func(encoded []byte, into *string) bool {
		*into = string(encoded)
		return true
	}, func(m *metav1.ObjectMeta) []string { return m.Finalizers })
}

// LabelsAndOwners calls use with the encoded labels and owner references, in one or more parts, without decoding them:
// two states of an object with equal parts have equal labels and owners. (The reverse need not hold.) It returns false
// if the encoding is unusual, possibly after some parts.
func (o *Object) LabelsAndOwners(use func(encoded []byte)) bool {
	switch o.Format {
	case Protobuf:
		meta, ok := protoMetadataBytes(o.Bytes)
		f := fields{b: meta}
		for ok && f.next() {
			if f.num == numLabels || f.num == numOwnerReferences {
				use(meta[f.start:f.end])
			}
		}
		return ok && !f.invalid
	case JSON, Failed:
		return jsonLabelsAndOwners(o.Bytes, use)
	default:
		return false
	}
}

func (o *Object) stringMap(
	num int32, name string, slow func(*metav1.ObjectMeta) map[string]string,
) (m map[string]string) {
	ok := false
	if o.Format == Protobuf {
		m, ok = protoStringMap(o.Bytes, num)
	} else {
		m, ok = jsonStringMap(o.Bytes, name)
	}
	if !ok {
		return slow(o.slowMetadata())
	}
	return m
}

// listOf returns a list of the metadata. decode decodes an item from protobuf.
func listOf[V any](
	o *Object, num int32, name string, decode func(encoded []byte, into *V) bool, slow func(*metav1.ObjectMeta) []V,
) (list []V) {
	if o.Format == Protobuf {
		if eachMetadata(o.Bytes, num, func(encoded []byte) bool {
			list = append(list, *new(V))
			return decode(encoded, &list[len(list)-1])
		}) {
			return list
		}
	} else {
		var decoded []V // list must not be allocated
		if decodeMetadataField(o.Bytes, name, &decoded) {
			return decoded
		}
	}
	return slow(o.slowMetadata())
}

// slowMetadata decodes the whole metadata. Parse has checked that it can be decoded. An error means bytes that do not
// come from this package, which are treated as an object without metadata.
func (o *Object) slowMetadata() *metav1.ObjectMeta {
	decode := decodeJSONMetadata
	if o.Format == Protobuf {
		decode = decodeProtoMetadata
	}
	meta, err := decode(o.Bytes)
	if err != nil {
		return &metav1.ObjectMeta{}
	}
	return meta
}

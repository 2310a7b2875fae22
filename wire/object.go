package wire

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Format is how an object's bytes are encoded.
type Format uint8

// The formats.
const (
	// Protobuf is the object's own message, without the envelope ("k8s\0" and
	// runtime.Unknown) that it travels in.
	Protobuf Format = iota + 1
	// JSON is the object as one JSON value.
	JSON
)

// String returns the format's name.
func (f Format) String() string {
	switch f {
	case Protobuf:
		return "protobuf"
	case JSON:
		return "JSON"
	default:
		return fmt.Sprintf("Format(%d)", uint8(f))
	}
}

// Object is one object as bytes, without the fields that were cut.
//
// An Object of an EventReader or a list is valid until the next one is read: its Bytes
// are a buffer that is used again. The strings may be kept.
type Object struct {
	Format Format
	Bytes  []byte

	Key             kube.Key
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Deleting is true when the object has a deletionTimestamp.
	Deleting bool
	// Manager is the field manager that wrote the object last, as far as
	// metadata.managedFields tells, whose times are in seconds. It is known of objects as
	// they come from the API server, also where managedFields are cut; a store does not keep
	// it. Empty: unknown.
	Manager string
}

// Clone returns a copy of o that shares no memory with it, and so stays valid.
func (o *Object) Clone() *Object {
	c := *o
	c.Bytes = slices.Clone(o.Bytes)
	return &c
}

// The following read Bytes anew at each call; what they return is the caller's.

// Labels returns the object's labels; nil when it has none.
func (o *Object) Labels() map[string]string {
	return o.stringMap(metaLabels, func(m *metav1.ObjectMeta) map[string]string { return m.Labels })
}

// Annotations returns the object's annotations; nil when it has none.
func (o *Object) Annotations() map[string]string {
	return o.stringMap(metaAnnotations, func(m *metav1.ObjectMeta) map[string]string { return m.Annotations })
}

// OwnerReferences returns the object's owner references; nil when it has none.
func (o *Object) OwnerReferences() []metav1.OwnerReference {
	switch o.Format {
	case Protobuf:
		if refs, ok := protoOwners(o.Bytes); ok {
			return refs
		}
	case JSON:
		if refs, ok := jsonOwners(o.Bytes); ok {
			return refs
		}
	}
	return o.slowMetadata().OwnerReferences
}

// LabelsAndOwners calls use with the labels and the owner references as they are encoded, in
// one or more parts, and decodes nothing: two states of an object with equal parts have equal
// labels and owners. (The reverse need not hold.) It returns false when it cannot tell, after
// some parts perhaps.
func (o *Object) LabelsAndOwners(use func(encoded []byte)) bool {
	switch o.Format {
	case Protobuf:
		meta, ok := protoMetadataBytes(o.Bytes)
		for i := 0; ok && i < len(meta); {
			var f field
			if f, ok = nextField(meta, i); ok && (f.num == numLabels || f.num == numOwnerReferences) {
				use(meta[f.start:f.end])
			}
			i = f.end
		}
		return ok
	case JSON:
		return jsonLabelsAndOwners(o.Bytes, use)
	default:
		return false
	}
}

// Finalizers returns the object's finalizers; nil when it has none.
func (o *Object) Finalizers() []string {
	switch o.Format {
	case Protobuf:
		if names, ok := protoFinalizers(o.Bytes); ok {
			return names
		}
	case JSON:
		if names, ok := jsonFinalizers(o.Bytes); ok {
			return names
		}
	}
	return o.slowMetadata().Finalizers
}

func (o *Object) stringMap(field metaField, slow func(*metav1.ObjectMeta) map[string]string) map[string]string {
	switch o.Format {
	case Protobuf:
		if m, ok := protoStringMap(o.Bytes, int32(field)); ok {
			return m
		}
	case JSON:
		if m, ok := jsonStringMap(o.Bytes, field.name()); ok {
			return m
		}
	}
	return slow(o.slowMetadata())
}

// slowMetadata decodes the whole metadata. Parse has seen that it can be decoded, so
// that an error means bytes that did not come from this package: they have no metadata.
func (o *Object) slowMetadata() *metav1.ObjectMeta {
	var meta *metav1.ObjectMeta
	var err error
	if o.Format == Protobuf {
		meta, err = decodeProtoMetadata(o.Bytes)
	} else {
		meta, err = decodeJSONMetadata(o.Bytes)
	}
	if err != nil {
		return &metav1.ObjectMeta{}
	}
	return meta
}

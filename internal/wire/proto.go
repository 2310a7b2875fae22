package wire

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// protoPrefix is the start of every protobuf object from an API server. The envelope follows, a runtime.Unknown
// message.
const protoPrefix = "k8s\x00"

// Protobuf wire types.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// The fields of metav1.ObjectMeta, from its generated.proto. ObjectMeta is field 1 of every kind.
const (
	numMetadata = 1

	numName              = 1
	numGenerateName      = 2
	numNamespace         = 3
	numSelfLink          = 4
	numUID               = 5
	numResourceVersion   = 6
	numGeneration        = 7
	numCreationTimestamp = 8
	numDeletionTimestamp = 9
	numGracePeriod       = 10
	numLabels            = 11
	numAnnotations       = 12
	numOwnerReferences   = 13
	numFinalizers        = 14
	numManagedFields     = 17
)

// field is one field of a protobuf message. Its tag is at start, its content from body to end (for varints the content
// is in value).
type field struct {
	num              int32
	wireType         int
	start, body, end int
	value            uint64
}

// readVarint reads a varint as the generated decoders do: padding is accepted, bits above the 64th are lost, and an
// eleventh byte is an error. n is zero if there is no valid varint at i.
func readVarint(b []byte, i int) (v uint64, n int) {
	for shift := uint(0); shift < 64; shift += 7 {
		at := i + n
		if at >= len(b) {
			return 0, 0
		}
		c := b[at]
		n++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// nextField reads the field at i. It returns false for invalid data, and for fields that only the generated decoders
// support (groups).
func nextField(b []byte, i int) (f field, ok bool) {
	f.start = i
	tag, n := uint64(0), 1
	if i < len(b) && b[i] < 0x80 {
		tag = uint64(b[i])
	} else if tag, n = readVarint(b, i); n == 0 {
		return f, false
	}
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f, false
	}
	f.num, f.wireType, f.body = int32(tag>>3), int(tag&7), i+n
	switch f.wireType {
	case wireVarint:
		if f.value, n = readVarint(b, f.body); n == 0 {
			return f, false
		}
		f.end = f.body + n
	case wireBytes:
		length, n := uint64(0), 1
		if f.body < len(b) && b[f.body] < 0x80 {
			length = uint64(b[f.body])
		} else if length, n = readVarint(b, f.body); n == 0 {
			return f, false
		}
		f.body += n
		if length > uint64(len(b)-f.body) {
			return f, false
		}
		f.end = f.body + int(length)
	case wireFixed64:
		f.end = f.body + 8
	case wireFixed32:
		f.end = f.body + 4
	default:
		return f, false
	}
	return f, f.end <= len(b)
}

// openEnvelope returns the kind of the object in an envelope, and its message.
func openEnvelope(data []byte) (kind string, raw []byte, err error) {
	body, ok := bytes.CutPrefix(data, []byte(protoPrefix))
	if !ok {
		return "", nil, fmt.Errorf("want a protobuf object that starts with %q, got %s", protoPrefix, excerpt(data))
	}
	if len(body) == 0 {
		return "", nil, fmt.Errorf("nothing follows the prefix %q", protoPrefix)
	}
	if kind, raw, ok := plainEnvelope(body); ok {
		return kind, raw, nil
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(body); err != nil {
		return "", nil, fmt.Errorf("read the envelope: %w", err)
	}
	return unknown.Kind, unknown.Raw, nil
}

// plainEnvelope parses an envelope in the usual encoding, without a copy.
func plainEnvelope(body []byte) (kind string, raw []byte, ok bool) {
	for i, last := 0, int32(0); i < len(body); {
		f, ok := nextField(body, i)
		if !ok || f.wireType != wireBytes || f.num <= last || f.num > 4 {
			return "", nil, false
		}
		switch f.num {
		case 1:
			if kind, ok = plainKind(body[f.body:f.end]); !ok {
				return "", nil, false
			}
		case 2:
			raw = body[f.body:f.end]
		}
		i, last = f.end, f.num
	}
	return kind, raw, true
}

// plainKind parses the kind of a runtime.TypeMeta. It returns a name only for kinds that the caller must distinguish,
// so that most objects allocate no string.
func plainKind(b []byte) (kind string, ok bool) {
	for i, last := 0, int32(0); i < len(b); {
		f, ok := nextField(b, i)
		if !ok || f.wireType != wireBytes || f.num <= last || f.num > 2 {
			return "", false
		}
		if f.num == 2 {
			if string(b[f.body:f.end]) == statusKind {
				kind = statusKind
			} else {
				kind = "other"
			}
		}
		i, last = f.end, f.num
	}
	return kind, true
}

// readProto sets o's metadata from an object's message. It returns the position of the metadata field, and false if the
// message has an encoding that only the generated decoders read correctly.
func readProto(msg []byte, o *Object, names *interner) (meta field, ok bool) {
	for i := 0; i < len(msg); {
		f, ok := nextField(msg, i)
		if !ok {
			return meta, false
		}
		if f.num == numMetadata {
			if f.wireType != wireBytes || meta.num != 0 {
				return meta, false
			}
			meta = f
		}
		i = f.end
	}
	return meta, readProtoMetadata(msg[meta.body:meta.end], o, names)
}

func readProtoMetadata(b []byte, o *Object, names *interner) bool {
	var writer lastWriter
	for i := 0; i < len(b); {
		f, ok := nextField(b, i)
		if !ok {
			return false
		}
		content := b[f.body:f.end]
		switch f.num {
		case numGeneration, numGracePeriod:
			ok = f.wireType == wireVarint
		case numName, numGenerateName, numNamespace, numSelfLink, numUID, numResourceVersion, numFinalizers,
			numManagedFields:
			ok = f.wireType == wireBytes
		case numCreationTimestamp, numDeletionTimestamp:
			ok = f.wireType == wireBytes && plainTimestamp(content)
		case numLabels, numAnnotations:
			ok = f.wireType == wireBytes && plainEntry(content)
		case numOwnerReferences:
			ok = f.wireType == wireBytes && plainOwner(content)
		}
		if !ok {
			return false
		}
		switch f.num {
		case numName:
			o.Key.Name = string(content)
		case numNamespace:
			o.Key.Namespace = names.intern(content)
		case numUID:
			o.UID = types.UID(content)
		case numResourceVersion:
			o.ResourceVersion = string(content)
		case numGeneration:
			o.Generation = int64(f.value)
		case numDeletionTimestamp:
			o.Deleting = true
		case numManagedFields:
			writer.proto(content)
		}
		i = f.end
	}
	o.Manager, o.TiedManager = names.intern(writer.name), names.intern(writer.tied)
	return true
}

// plainEntry reports whether a map entry has the encoders' format: only key and value. The generated decoders accept
// more, and even read past the end of an entry, so that nothing may be cut around an unusual entry.
func plainEntry(entry []byte) bool {
	_, _, ok := readEntry(entry)
	return ok
}

func readEntry(entry []byte) (key, value []byte, ok bool) {
	k, ok := nextField(entry, 0)
	if !ok || k.num != 1 || k.wireType != wireBytes {
		return nil, nil, false
	}
	v, ok := nextField(entry, k.end)
	if !ok || v.num != 2 || v.wireType != wireBytes || v.end != len(entry) {
		return nil, nil, false
	}
	return entry[k.body:k.end], entry[v.body:v.end], true
}

func plainTimestamp(b []byte) bool {
	for i := 0; i < len(b); {
		f, ok := nextField(b, i)
		if !ok || f.num > 2 || f.wireType != wireVarint {
			return false
		}
		i = f.end
	}
	return true
}

func plainOwner(b []byte) bool {
	for i := 0; i < len(b); {
		f, ok := nextField(b, i)
		if !ok {
			return false
		}
		switch f.num {
		case 1, 3, 4, 5:
			ok = f.wireType == wireBytes
		case 6, 7:
			ok = f.wireType == wireVarint
		}
		if !ok {
			return false
		}
		i = f.end
	}
	return true
}

// protoMetadataBytes returns the message's ObjectMeta. It returns false if there are several.
func protoMetadataBytes(msg []byte) ([]byte, bool) {
	var meta []byte
	found := false
	for i := 0; i < len(msg); {
		f, ok := nextField(msg, i)
		if !ok {
			return nil, false
		}
		if f.num == numMetadata {
			if found || f.wireType != wireBytes {
				return nil, false
			}
			meta, found = msg[f.body:f.end], true
		}
		i = f.end
	}
	return meta, true
}

// eachMetadata calls use with the content of every metadata field with the number num.
func eachMetadata(msg []byte, num int32, use func([]byte) bool) bool {
	meta, ok := protoMetadataBytes(msg)
	if !ok {
		return false
	}
	for i := 0; i < len(meta); {
		f, ok := nextField(meta, i)
		if !ok {
			return false
		}
		if f.num == num && (f.wireType != wireBytes || !use(meta[f.body:f.end])) {
			return false
		}
		i = f.end
	}
	return true
}

func protoStringMap(msg []byte, num int32) (m map[string]string, ok bool) {
	ok = eachMetadata(msg, num, func(entry []byte) bool {
		key, value, ok := readEntry(entry)
		if !ok {
			return false
		}
		if m == nil {
			m = map[string]string{}
		}
		m[string(key)] = string(value)
		return true
	})
	return m, ok
}

func protoOwners(msg []byte) (refs []metav1.OwnerReference, ok bool) {
	ok = eachMetadata(msg, numOwnerReferences, func(b []byte) bool {
		refs = append(refs, metav1.OwnerReference{})
		return refs[len(refs)-1].Unmarshal(b) == nil
	})
	return refs, ok
}

func protoFinalizers(msg []byte) (names []string, ok bool) {
	ok = eachMetadata(msg, numFinalizers, func(b []byte) bool {
		names = append(names, string(b))
		return true
	})
	return names, ok
}

// decodeProtoMetadata decodes the metadata with the generated decoders.
func decodeProtoMetadata(msg []byte) (*metav1.ObjectMeta, error) {
	var meta metav1.PartialObjectMetadata
	if err := meta.Unmarshal(msg); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	return &meta.ObjectMeta, nil
}

func (o *Object) setMetadata(meta *metav1.ObjectMeta) {
	o.Key = kube.Key{Namespace: meta.Namespace, Name: meta.Name}
	o.UID = meta.UID
	o.ResourceVersion = meta.ResourceVersion
	o.Generation = meta.Generation
	o.Deleting = meta.DeletionTimestamp != nil
}

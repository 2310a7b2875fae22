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

// fields iterates over the fields of a protobuf message: those of b are read with next, and then the embedded field is
// the current one.
type fields struct {
	field

	b []byte
	// invalid is true after invalid data, and after a field that only the generated decoders support (groups).
	invalid bool
}

// next reads the next field. It returns false at the end and for invalid data.
func (f *fields) next() bool {
	if f.invalid || f.end == len(f.b) {
		return false
	}
	f.invalid = !f.read(f.b, f.end)
	return !f.invalid
}

// nextPlain is next for the usual encoding of a message whose fields, up to the number last, are not varints: each at
// most once, in their order.
func (f *fields) nextPlain(last int32) bool {
	before := f.num
	if !f.next() {
		return false
	}
	f.invalid = f.wireType != wireBytes || f.num <= before || f.num > last
	return !f.invalid
}

func (f *fields) content() []byte { return f.b[f.body:f.end] }

// read sets f to the field at i. It returns false for invalid data.
func (f *field) read(b []byte, i int) bool {
	tag, n := uint64(0), 1
	if i < len(b) && b[i] < 0x80 {
		tag = uint64(b[i])
	} else if tag, n = readVarint(b, i); n == 0 {
		return false
	}
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return false
	}
	*f = field{num: int32(tag >> 3), wireType: int(tag & 7), start: i, body: i + n}
	switch f.wireType {
	case wireVarint:
		f.value, n = readVarint(b, f.body)
		f.end = f.body + n
		return n > 0
	case wireBytes:
		length, n := uint64(0), 1
		if f.body < len(b) && b[f.body] < 0x80 {
			length = uint64(b[f.body])
		} else if length, n = readVarint(b, f.body); n == 0 {
			return false
		}
		f.body += n
		if length > uint64(len(b)-f.body) {
			return false
		}
		f.end = f.body + int(length)
	case wireFixed64:
		f.end = f.body + 8
	case wireFixed32:
		f.end = f.body + 4
	default:
		return false
	}
	return f.end <= len(b)
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
	f := fields{b: body}
	for f.nextPlain(4) {
		switch f.num {
		case 1:
			if kind, ok = plainKind(f.content()); !ok {
				return "", nil, false
			}
		case 2:
			raw = f.content()
		}
	}
	return kind, raw, !f.invalid
}

// plainKind parses the kind of a runtime.TypeMeta. It returns a name only for kinds that the caller must distinguish,
// so that most objects allocate no string.
func plainKind(b []byte) (kind string, ok bool) {
	f := fields{b: b}
	for f.nextPlain(2) {
		if f.num == 2 {
			kind = "other"
			if string(f.content()) == statusKind {
				kind = statusKind
			}
		}
	}
	return kind, !f.invalid
}

// readProto sets o's metadata from an object's message. It returns the position of the metadata field, and false if the
// message has an encoding that only the generated decoders read correctly.
func readProto(msg []byte, o *Object, names *interner) (meta field, ok bool) {
	meta, ok = protoMetadata(msg)
	return meta, ok && readProtoMetadata(msg[meta.body:meta.end], o, names)
}

func readProtoMetadata(b []byte, o *Object, names *interner) bool {
	var writer lastWriter
	f := fields{b: b}
	for f.next() {
		content, ok := f.content(), f.wireType == wireBytes
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
			o.Generation, ok = int64(f.value), f.wireType == wireVarint
		case numGracePeriod:
			ok = f.wireType == wireVarint
		case numCreationTimestamp:
			ok = ok && plainTimestamp(content)
		case numDeletionTimestamp:
			o.Deleting, ok = true, ok && plainTimestamp(content)
		case numLabels, numAnnotations:
			ok = ok && plainEntry(content)
		case numOwnerReferences:
			ok = ok && plainOwner(content)
		case numManagedFields:
			writer.proto(content)
		case numGenerateName, numSelfLink, numFinalizers:
		default:
			ok = true
		}
		if !ok {
			return false
		}
	}
	o.Manager, o.TiedManager = names.intern(writer.name), names.intern(writer.tied)
	return !f.invalid
}

// plainEntry reports whether a map entry has the encoders' format: only key and value. The generated decoders accept
// more, and even read past the end of an entry, so that nothing may be cut around an unusual entry.
func plainEntry(entry []byte) bool {
	_, _, ok := readEntry(entry)
	return ok
}

// readEntry parses a message with two fields, such as a map entry, in the usual encoding.
func readEntry(entry []byte) (key, value []byte, ok bool) {
	f := fields{b: entry}
	if !f.nextPlain(1) {
		return nil, nil, false
	}
	key = f.content()
	if !f.nextPlain(2) || f.end != len(entry) {
		return nil, nil, false
	}
	return key, f.content(), true
}

func plainTimestamp(b []byte) bool {
	f := fields{b: b}
	for f.next() {
		if f.num > 2 || f.wireType != wireVarint {
			return false
		}
	}
	return !f.invalid
}

func plainOwner(b []byte) bool {
	f := fields{b: b}
	for f.next() {
		isText := f.num == 1 || f.num >= 3 && f.num <= 5
		isBool := f.num == 6 || f.num == 7
		if isText && f.wireType != wireBytes || isBool && f.wireType != wireVarint {
			return false
		}
	}
	return !f.invalid
}

// protoMetadata returns the field with the message's ObjectMeta. It returns false if there are several.
func protoMetadata(msg []byte) (meta field, ok bool) {
	f := fields{b: msg}
	for f.next() {
		if f.num == numMetadata {
			if f.wireType != wireBytes || meta.num != 0 {
				return meta, false
			}
			meta = f.field
		}
	}
	return meta, !f.invalid
}

func protoMetadataBytes(msg []byte) ([]byte, bool) {
	meta, ok := protoMetadata(msg)
	return msg[meta.body:meta.end], ok
}

// eachMetadata calls use with the content of every metadata field with the number num.
func eachMetadata(msg []byte, num int32, use func([]byte) bool) bool {
	meta, ok := protoMetadataBytes(msg)
	f := fields{b: meta}
	for ok && f.next() {
		if f.num == num {
			ok = f.wireType == wireBytes && use(f.content())
		}
	}
	return ok && !f.invalid
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

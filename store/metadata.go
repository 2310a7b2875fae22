package store

import (
	"encoding/binary"

	"github.com/evenkeel-go/evenkeel/wire"
)

// Field numbers of ObjectMeta, by its generated.proto.
const (
	fieldMetadata        = 1 // of every kind
	fieldResourceVersion = 6 // the last of those that come before generation, labels and so on
)

// lateMetadata returns the part of o's bytes that has the labels and the owner references,
// but not the resource version, which is another in every state. So most updates can be
// seen not to concern the indexes without decoding labels and owners.
//
// It knows protobuf only, written as the API server and package wire write it: one
// metadata message, with its fields in order. For anything else ok is false.
func lateMetadata(o *wire.Object) (section []byte, ok bool) {
	if o.Format != wire.Protobuf {
		return nil, false
	}
	var metadata []byte
	for rest := o.Bytes; len(rest) > 0; {
		number, value, after, ok := nextField(rest)
		if !ok || number == fieldMetadata && metadata != nil {
			return nil, false
		}
		if number == fieldMetadata {
			metadata = value
		}
		rest = after
	}
	// Whatever the order is, nothing is skipped but fields that are neither labels nor owners.
	for len(metadata) > 0 {
		number, _, after, ok := nextField(metadata)
		if !ok || number > fieldResourceVersion {
			break
		}
		metadata = after
	}
	return metadata, true
}

// nextField reads a field of protobuf: bytes, a message or a varint. Others are not ok.
func nextField(b []byte) (number uint64, value, after []byte, ok bool) {
	const varint, lengthDelimited = 0, 2
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, false
	}
	b = b[n:]
	length, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, false
	}
	b = b[n:]
	switch {
	case tag&7 == varint:
		return tag >> 3, nil, b, true
	case tag&7 == lengthDelimited && length <= uint64(len(b)):
		return tag >> 3, b[:length], b[length:], true
	}
	return 0, nil, nil, false
}

package predicate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// onlyMetadata reports whether o has metadata only, so that other changes of the object cannot be detected.
func onlyMetadata(o *wire.Object) bool {
	if o.Format == wire.JSON {
		// The API server sets this kind on the metadata of objects of every kind.
		const name = "PartialObjectMetadata"
		if !bytes.Contains(o.Bytes, []byte(`"`+name+`"`)) {
			return false
		}
		var object struct {
			Kind string `json:"kind"`
		}
		return json.Unmarshal(o.Bytes, &object) == nil && object.Kind == name
	}
	return !hasContent(o.Bytes)
}

// hasContent reports whether a protobuf message has a field other than field 1, which is the metadata in all
// kinds.
func hasContent(message []byte) bool {
	const metadataTag = 1<<3 | 2 // field 1, length-delimited
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return false // invalid encoding: the caller passes the change
		}
		if tag != metadataTag {
			return true
		}
		length, m := binary.Uvarint(message[n:])
		if m <= 0 || length > uint64(len(message)-n-m) {
			return false
		}
		message = message[n+m+int(length):]
	}
	return false
}

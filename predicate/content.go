package predicate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"github.com/evenkeel-go/evenkeel/wire"
)

// onlyMetadata is true when nothing but the metadata of an object was retrieved, so that its
// states show no change of anything else.
func onlyMetadata(o *wire.Object) bool {
	if o.Format == wire.JSON {
		// The API server calls such objects so, whatever kind they are of.
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

// hasContent is true when a protobuf message has a field beside the first, which is the
// metadata in all kinds.
func hasContent(message []byte) bool {
	const metadataTag = 1<<3 | 2 // field 1, with a length
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return false // broken: it cannot be compared
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

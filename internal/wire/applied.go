package wire

import (
	"encoding/binary"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If managedFields are cut except for one entry, that entry is stored in the object's bytes under a number, or a name
// in JSON, that ObjectMeta does not have. Decoders therefore ignore it.
const (
	numApplied  = 2047
	nameApplied = "-applied" // not longer than managedFields: a cut never makes an object longer
)

// keepAppliedBy keeps the entry of manager if managedFields are cut. It may only be called while c is created.
func (c *Cut) keepAppliedBy(manager string) {
	if node := c.json.child([]byte("metadata")).child([]byte(nameManagedFields)); node != nil {
		node.applier = manager
	}
	if node := c.proto.child(numMetadata).child(numManagedFields); node != nil {
		node.applier = manager
	}
}

// AppliedFields returns the entry of managedFields that a Cut of NewCutExceptApplied has kept, if any.
func (o *Object) AppliedFields() (entry metav1.ManagedFieldsEntry, found bool) {
	switch o.Format {
	case Protobuf:
		ok := eachMetadata(o.Bytes, numApplied, func(b []byte) bool {
			found = entry.Unmarshal(b) == nil
			return found
		})
		found = found && ok
	case JSON:
		value, ok := jsonMetadataField(o.Bytes, nameApplied)
		found = ok && value != nil && json.Unmarshal(value, &entry) == nil
	}
	if !found {
		return metav1.ManagedFieldsEntry{}, false
	}
	return entry, true
}

// appendProtoApplied appends an entry of managedFields as field numApplied.
func appendProtoApplied(dst, entry []byte) []byte {
	dst = binary.AppendUvarint(dst, numApplied<<3|wireBytes)
	dst = binary.AppendUvarint(dst, uint64(len(entry)))
	return append(dst, entry...)
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protoNode defines the fields to cut from one protobuf message.
type protoNode struct {
	remove bool
	// applier is only set for managedFields. It is the manager of the entry that is kept; see applied.go.
	applier string
	fields  []protoChild
	// maps are the map fields of the message: their entries must be plain before anything around them is cut, see
	// plainEntry.
	maps []int32
	// keys are the entries, if the node is a map. The message of an entry is its field 2.
	keys map[string]*protoNode
}

type protoChild struct {
	num  int32
	node *protoNode
}

func (n *protoNode) child(num int32) *protoNode {
	if n == nil {
		return nil
	}
	for i := range n.fields {
		if n.fields[i].num == num {
			return n.fields[i].node
		}
	}
	return nil
}

// add returns the child with this number, and creates it if necessary.
func (n *protoNode) add(num int32) *protoNode {
	if c := n.child(num); c != nil {
		return c
	}
	c := &protoNode{}
	n.fields = append(n.fields, protoChild{num, c})
	return c
}

// rewrite appends msg to dst without the fields that are cut. It returns false if msg has an unusual encoding, so that
// a cut could change other fields.
func (n *protoNode) rewrite(dst, msg []byte) ([]byte, bool) {
	copied := 0
	f := fields{b: msg}
	for f.next() {
		child := n.child(f.num)
		if child == nil {
			if slices.Contains(n.maps, f.num) && (f.wireType != wireBytes || !plainEntry(f.content())) {
				return dst, false
			}
			continue
		}
		if child.remove {
			dst = append(dst, msg[copied:f.start]...)
			if child.applier != "" {
				if e, ok := readProtoEntry(f.content()); ok && e.isAppliedBy(child.applier) {
					dst = appendProtoApplied(dst, f.content())
				}
			}
			copied = f.end
			continue
		}
		if f.wireType != wireBytes {
			return dst, false
		}
		content := f.content()
		target := child
		if child.keys != nil {
			key, _, ok := readEntry(content)
			if !ok {
				return dst, false
			}
			entry := child.keys[string(key)]
			if entry == nil {
				continue
			}
			if entry.remove {
				dst = append(dst, msg[copied:f.start]...)
				copied = f.end
				continue
			}
			target = &protoNode{fields: []protoChild{{2, entry}}}
		}
		_, tagLen := readVarint(msg, f.start)
		dst = append(dst, msg[copied:f.start+tagLen]...)
		var ok bool
		if dst, ok = appendRewritten(dst, content, target); !ok {
			return dst, false
		}
		copied = f.end
	}
	return append(dst, msg[copied:]...), !f.invalid
}

// appendRewritten appends the rewritten msg with its length.
func appendRewritten(dst, msg []byte, n *protoNode) ([]byte, bool) {
	at := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(msg)))
	body := len(dst)
	dst, ok := n.rewrite(dst, msg)
	if !ok {
		return dst, false
	}
	// The message cannot become longer, so its encoded length cannot either.
	size := len(dst) - body
	var length [binary.MaxVarintLen64]byte
	used := binary.PutUvarint(length[:], uint64(size))
	copy(dst[at:], length[:used])
	if at+used < body {
		copy(dst[at+used:], dst[body:])
		dst = dst[:at+used+size]
	}
	return dst, true
}

// parseProto parses an object's message.
func (p *parser) parseProto(msg []byte) error {
	if p.plainProto(msg) {
		return nil
	}
	msg, err := p.cut.canonicalProto(msg)
	if err != nil {
		return err
	}
	if !p.plainProto(msg) {
		return errors.New("the re-encoded object is invalid")
	}
	return nil
}

func (p *parser) plainProto(msg []byte) bool {
	p.obj = Object{Format: Protobuf, Bytes: slices.Clip(msg)}
	meta, ok := readProto(msg, &p.obj, &p.names)
	if !ok || p.cut == nil {
		return ok
	}
	// A map entry before the metadata could extend into it, see plainEntry.
	if meta.start != 0 {
		return false
	}
	p.buf, ok = p.cut.proto.rewrite(slices.Grow(p.room(len(msg)), len(msg)), msg)
	p.obj.Bytes = p.buf
	return ok
}

// canonicalProto encodes an unusual message again with Kubernetes' encoders.
func (c *Cut) canonicalProto(msg []byte) ([]byte, error) {
	if c != nil && c.newMessage != nil {
		m := c.newMessage()
		if err := m.Unmarshal(msg); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		out, err := m.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode again: %w", err)
		}
		return out, nil
	}
	meta, err := decodeProtoMetadata(msg)
	if err != nil {
		return nil, err
	}
	return replaceMetadata(msg, meta)
}

// replaceMetadata replaces all metadata fields of msg by meta.
func replaceMetadata(msg []byte, meta *metav1.ObjectMeta) ([]byte, error) {
	encoded, err := meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode metadata again: %w", err)
	}
	out := binary.AppendUvarint([]byte{numMetadata<<3 | wireBytes}, uint64(len(encoded)))
	out = append(out, encoded...)
	f := fields{b: msg}
	for f.next() {
		if f.num != numMetadata {
			out = append(out, msg[f.start:f.end]...)
		}
	}
	if f.invalid {
		return nil, fmt.Errorf("a protobuf field at byte %d that only the kind's own decoder supports", f.end)
	}
	return out, nil
}

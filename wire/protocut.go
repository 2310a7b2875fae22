package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protoNode says what is cut from one protobuf message.
type protoNode struct {
	remove bool
	fields []protoChild
	// maps are the fields of the message that are maps: their entries must be plain
	// before anything is cut around them, see plainEntry.
	maps []int32
	// keys are, when the node stands for a map, its entries. The message of an entry is
	// field 2 of it.
	keys map[string]*protoNode
}

type protoChild struct {
	num  int32
	node *protoNode
}

func (n *protoNode) child(num int32) *protoNode {
	for i := range n.fields {
		if n.fields[i].num == num {
			return n.fields[i].node
		}
	}
	return nil
}

// add returns the child num, which it makes where there is none yet.
func (n *protoNode) add(num int32) *protoNode {
	if c := n.child(num); c != nil {
		return c
	}
	c := &protoNode{}
	n.fields = append(n.fields, protoChild{num, c})
	return c
}

// rewrite appends msg to dst without what is cut. It is false when there is something
// unusual in msg, so that cutting could change what else it says.
func (n *protoNode) rewrite(dst, msg []byte) ([]byte, bool) {
	copied := 0
	for i := 0; i < len(msg); {
		f, ok := nextField(msg, i)
		if !ok {
			return dst, false
		}
		i = f.end
		child := n.child(f.num)
		if child == nil {
			if slices.Contains(n.maps, f.num) && (f.wireType != wireBytes || !plainEntry(msg[f.body:f.end])) {
				return dst, false
			}
			continue
		}
		if child.remove {
			dst = append(dst, msg[copied:f.start]...)
			copied = f.end
			continue
		}
		if f.wireType != wireBytes {
			return dst, false
		}
		content := msg[f.body:f.end]
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
		if dst, ok = appendRewritten(dst, content, target); !ok {
			return dst, false
		}
		copied = f.end
	}
	return append(dst, msg[copied:]...), true
}

// appendRewritten appends the length of the rewritten msg, and the rewritten msg.
func appendRewritten(dst, msg []byte, n *protoNode) ([]byte, bool) {
	at := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(msg)))
	body := len(dst)
	dst, ok := n.rewrite(dst, msg)
	if !ok {
		return dst, false
	}
	// The message can only have become shorter, and so its length.
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

// parseProto reads an object's message.
func (p *parser) parseProto(msg []byte) error {
	if p.plainProto(msg) {
		return nil
	}
	msg, err := p.cut.canonicalProto(msg)
	if err != nil {
		return err
	}
	if !p.plainProto(msg) {
		return errors.New("the re-encoded object cannot be read")
	}
	return nil
}

func (p *parser) plainProto(msg []byte) bool {
	p.obj = Object{Format: Protobuf, Bytes: slices.Clip(msg)}
	meta, ok := readProto(msg, &p.obj, &p.names)
	if !ok || p.cut == nil {
		return ok
	}
	// An entry of a map before the metadata could reach into it, see plainEntry.
	if meta.start != 0 {
		return false
	}
	p.buf, ok = p.cut.proto.rewrite(slices.Grow(p.room(len(msg)), len(msg)), msg)
	p.obj.Bytes = p.buf
	return ok
}

// canonicalProto encodes an unusual message anew, as the encoders of Kubernetes would.
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

// replaceMetadata puts meta in the place of all metadata fields of msg.
func replaceMetadata(msg []byte, meta *metav1.ObjectMeta) ([]byte, error) {
	encoded, err := meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode metadata again: %w", err)
	}
	out := binary.AppendUvarint([]byte{numMetadata<<3 | wireBytes}, uint64(len(encoded)))
	out = append(out, encoded...)
	for i := 0; i < len(msg); {
		f, ok := nextField(msg, i)
		if !ok {
			return nil, fmt.Errorf("a protobuf field at byte %d that only the kind's own decoder understands", i)
		}
		if f.num != numMetadata {
			out = append(out, msg[f.start:f.end]...)
		}
		i = f.end
	}
	return out, nil
}

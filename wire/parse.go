package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Parse reads one object as a server sends it: JSON, or protobuf in its envelope.
//
// Only the metadata is read and checked, and the JSON grammar; what is wrong elsewhere
// shows when the object is decoded. What is cut is not checked beyond the grammar.
// Data is not changed; Bytes may share its memory.
//
// Errors: data in neither format, or whose metadata cannot be read. JSON that has the
// same key twice, so that typed and unstructured decoders would see different objects
// (which name, namespace, ...), is refused too.
func Parse(data []byte, cut *Cut) (*Object, error) {
	p := parser{cut: cut}
	if err := p.parse(data); err != nil {
		return nil, fmt.Errorf("parse an object: %w", err)
	}
	return &p.obj, nil
}

// Read reads what an Object's Bytes were: for bytes that were kept. The Object shares
// the bytes' memory.
func Read(format Format, data []byte) (Object, error) {
	var p parser
	var err error
	switch format {
	case Protobuf:
		err = p.parseProto(data)
	case JSON:
		err = p.parseJSON(data)
	default:
		err = errors.New("unknown format")
	}
	if err != nil {
		return Object{}, fmt.Errorf("read an object from %d bytes of %s: %w", len(data), format, err)
	}
	return p.obj, nil
}

// parser reads one object after the other. Its memory is used again: obj is valid
// until the next object is parsed.
type parser struct {
	cut   *Cut
	names interner
	buf   []byte // what obj.Bytes are when something was cut
	obj   Object
}

func (p *parser) parse(data []byte) error {
	if bytes.HasPrefix(data, []byte(protoPrefix)) {
		return p.parseEnvelope(data)
	}
	start := skipSpace(data, 0)
	if start < len(data) && data[start] == '{' {
		return p.parseJSON(data)
	}
	return fmt.Errorf("neither JSON nor protobuf: %s", excerpt(data))
}

func (p *parser) parseEnvelope(data []byte) error {
	if err := p.cut.checkProto(); err != nil {
		return err
	}
	_, raw, err := openEnvelope(data)
	if err != nil {
		return err
	}
	return p.parseProto(raw)
}

// room returns the buffer for what is kept of size bytes. One that a large object has
// left behind is not kept.
func (p *parser) room(size int) []byte {
	if cap(p.buf) > keepWindow && size <= keepWindow/2 {
		p.buf = nil
	}
	return p.buf[:0]
}

// interner makes strings of bytes, and gives the same string again for what it has
// seen lately. The zero value is ready.
type interner struct {
	known map[string]string
}

// maxInterned bounds the interner. A cluster with more namespaces than this costs a
// string for an event now and then.
const maxInterned = 1024

func (n *interner) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if n.known == nil {
		return string(b)
	}
	if s, ok := n.known[string(b)]; ok {
		return s
	}
	if len(n.known) >= maxInterned {
		clear(n.known)
	}
	s := string(b)
	n.known[s] = s
	return s
}

// excerpt quotes the first bytes of data, for errors.
func excerpt(data []byte) string {
	const most = 64
	if len(data) == 0 {
		return "nothing"
	}
	if len(data) > most {
		return strconv.Quote(string(data[:most])) + "..."
	}
	return strconv.Quote(string(data))
}

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Parse reads one object as a server sends it: JSON, or protobuf in its envelope.
//
// Only the metadata and the JSON grammar are validated. Other errors are found when the object is decoded. Fields that
// are cut are only checked for their grammar. Data is not changed. Bytes may share its memory.
//
// Errors: data in neither format, and invalid metadata. JSON with a duplicate key, which typed and unstructured
// decoders would read as different objects (another name, namespace, ...), is rejected too.
func Parse(data []byte, cut *Cut) (*Object, error) {
	p := parser{cut: cut}
	if err := p.parse(data); err != nil {
		return nil, fmt.Errorf("parse an object: %w", err)
	}
	return &p.obj, nil
}

// Read parses the Bytes of an Object that were stored. The Object shares their memory.
func Read(format Format, data []byte) (Object, error) {
	var p parser
	var err error
	switch format {
	case Protobuf:
		err = p.parseProto(data)
	case JSON, Failed:
		err = p.parseJSON(data)
		p.obj.Format = format
	default:
		err = errors.New("unknown format")
	}
	if err != nil {
		return Object{}, fmt.Errorf("read an object from %d bytes of %s: %w", len(data), format, err)
	}
	return p.obj, nil
}

// parser parses one object after another. It reuses its memory: obj is valid until the next object is parsed.
type parser struct {
	cut   *Cut
	names interner
	buf   []byte // obj.Bytes if something was cut
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

// room returns the buffer with capacity for size bytes. It releases a buffer that a large object has left.
func (p *parser) room(size int) []byte {
	if cap(p.buf) > keepWindow && size <= keepWindow/2 {
		p.buf = nil
	}
	return p.buf[:0]
}

// interner converts bytes to strings, and returns the same string again for recent values. The zero value is ready to
// use.
type interner struct {
	known map[string]string
}

// maxInterned is the maximum number of strings. In a cluster with more namespaces, some events allocate a string.
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

// excerpt returns the quoted first bytes of data, for errors.
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

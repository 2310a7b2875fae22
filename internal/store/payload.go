package store

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// Some parts are unique to each object, so that no dictionary can compress them: name, uid and resource version, which
// are in the header anyway, and the IDs of containers, which have hexadecimal digits that need only half the space.
// They are removed from the payload before compression, wherever they occur, and inserted again by reads. Only bytes
// are compared, independent of the format: reads insert the removed bytes, so any occurrence may be removed.
const (
	// The header's parts are searched in this many bytes from the start, and then in this many after the last match:
	// searching the whole payload would take longer than compressing it.
	spliceWindow, nextWindow = 2048, 384
	maxSplices               = 16

	minName, minUID, minVersion = 5, 8, 4 // shorter ones do not save memory

	beforeDigits         = "://" // as in containerd://0123456789abcdef...
	minDigits, maxDigits = 32, 128
)

// A splice is the varint (bytes since the last splice)<<2 | kind. For digits, their bytes follow, with a length.
const (
	spliceName = iota
	spliceUID
	spliceVersion
	spliceDigits
	spliceKinds
)

// maxPooled is the maximum size of pooled buffers.
const maxPooled = 256 << 10

// scratch has the buffers for writing or reading one record.
type scratch struct {
	cut     []byte // the payload without the spliced parts
	packed  []byte // compressed
	whole   []byte // the object's bytes
	record  []byte
	splices []byte
	names   []byte
	digits  []byte
	object  wire.Object
}

type pool struct{ scratches sync.Pool }

func (p *pool) get() *scratch {
	if s, ok := p.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

func (p *pool) put(s *scratch) {
	if cap(s.cut)+cap(s.packed)+cap(s.whole)+cap(s.record) <= maxPooled {
		p.scratches.Put(s)
	}
}

// payload is the payload of a new record. Its slices are parts of a scratch.
type payload struct {
	splices    []byte
	bytes      []byte      // as stored
	dictionary *dictionary // nil if not compressed
	packedFor  *dictionary // the dictionary that was current
}

// pack returns the payload for o.
func (s *scratch) pack(o *wire.Object, d *dictionary) payload {
	s.cutOut(o)
	p := payload{splices: s.splices, bytes: s.cut, packedFor: d}
	if packed := s.compress(d, s.cut); packed != nil {
		p.bytes, p.dictionary = packed, d
	}
	return p
}

// compress returns nil if b does not get shorter.
func (s *scratch) compress(d *dictionary, b []byte) []byte {
	if d == nil {
		return nil
	}
	s.packed = d.encode(s.packed, b)
	if len(s.packed) >= len(b) {
		return nil
	}
	return s.packed
}

// cutOut sets cut and splices.
func (s *scratch) cutOut(o *wire.Object) {
	s.names = append(append(append(s.names[:0], o.Key.Name...), o.UID...), o.ResourceVersion...)
	uid := len(o.Key.Name)
	version := uid + len(o.UID)
	c := cutter{from: o.Bytes, parts: [spliceKinds][]byte{s.names[:uid], s.names[uid:version], s.names[version:]}}
	for kind := range c.next {
		c.find(kind)
	}
	s.cut, s.splices = s.cut[:0], s.splices[:0]
	for range maxSplices {
		kind := c.first()
		if kind < 0 {
			break
		}
		place := c.next[kind]
		s.splices = binary.AppendUvarint(s.splices, uint64(place-c.at)<<2|uint64(kind))
		if kind == spliceDigits {
			s.splices = binary.AppendUvarint(s.splices, uint64(len(c.parts[kind])/2))
			s.splices, _ = hex.AppendDecode(s.splices, c.parts[kind]) // always valid digits
		}
		s.cut = append(s.cut, o.Bytes[c.at:place]...)
		c.moveTo(place + len(c.parts[kind]))
	}
	s.cut = append(s.cut, o.Bytes[c.at:]...)
}

// cutter finds the parts to splice, one after the other.
type cutter struct {
	from  []byte
	at    int                 // everything before was processed
	parts [spliceKinds][]byte // the parts to find; the digits are those at next
	next  [spliceKinds]int    // the next position of each part, or -1
}

// first returns the kind of the part with the first position, or -1.
func (c *cutter) first() int {
	first := -1
	for kind, place := range c.next {
		if place >= 0 && (first < 0 || place < c.next[first]) {
			first = kind
		}
	}
	return first
}

// moveTo continues after a removed part, and after parts that overlap it.
func (c *cutter) moveTo(at int) {
	c.at = at
	for kind, place := range c.next {
		if place >= 0 && place < at {
			c.find(kind)
		}
	}
}

// find sets next[kind], starting at at.
func (c *cutter) find(kind int) {
	c.next[kind] = -1
	if kind == spliceDigits {
		c.findDigits()
		return
	}
	shortest := [...]int{spliceName: minName, spliceUID: minUID, spliceVersion: minVersion}[kind]
	if len(c.parts[kind]) < shortest {
		return
	}
	window := min(len(c.from), spliceWindow)
	if c.at > 0 {
		if kind == spliceVersion { // it occurs once
			return
		}
		window = min(len(c.from), c.at+nextWindow)
	}
	if i := bytes.Index(c.from[c.at:window], c.parts[kind]); i >= 0 {
		c.next[kind] = c.at + i
	}
}

// findDigits searches the text before digits, which is faster than searching digits.
func (c *cutter) findDigits() {
	for begin := c.at; ; {
		i := bytes.Index(c.from[begin:], []byte(beforeDigits))
		if i < 0 {
			return
		}
		begin += i + len(beforeDigits)
		end := begin
		for end < len(c.from) && end-begin < maxDigits && isDigit(c.from[end]) {
			end++
		}
		if end -= (end - begin) & 1; end-begin >= minDigits {
			c.next[spliceDigits] = begin
			c.parts[spliceDigits] = c.from[begin:end]
			return
		}
	}
}

// isDigit reports whether c is a hexadecimal digit in the format of hex.AppendEncode.
func isDigit(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// unpack returns the object's bytes, a part of the scratch.
func (s *scratch) unpack(h *header, d *dictionary) ([]byte, error) {
	cut, err := s.decompress(h, d)
	if err != nil || h.splices == "" {
		return cut, err
	}
	// Only the spliced parts are needed as text.
	s.names = h.appendUID(s.names[:0])
	uid := len(s.names)
	s.names = h.appendVersion(s.names)
	out := s.whole[:0]
	for in := reader(h.splices); in != ""; {
		splice := in.uvarint()
		gap := splice >> 2
		out = append(out, cut[:gap]...)
		cut = cut[gap:]
		switch splice & 3 {
		case spliceName:
			out = append(out, h.name...)
		case spliceUID:
			out = append(out, s.names[:uid]...)
		case spliceVersion:
			out = append(out, s.names[uid:]...)
		case spliceDigits:
			s.digits = append(s.digits[:0], in.bytes(in.uvarint())...)
			out = hex.AppendEncode(out, s.digits)
		}
	}
	s.whole = append(out, cut...)
	return s.whole, nil
}

// decompress returns the payload without the spliced parts, a part of the scratch.
func (s *scratch) decompress(h *header, d *dictionary) ([]byte, error) {
	if h.flags&flagDictionary == 0 {
		s.cut = append(s.cut[:0], h.payload...)
		return s.cut, nil
	}
	// The decoder needs a slice. Copying a few hundred bytes is cheaper than storing slices.
	s.packed = append(s.packed[:0], h.payload...)
	cut, err := d.decode(s.cut, s.packed)
	if err != nil {
		return nil, fmt.Errorf("decompress %q: %w", h.name, err)
	}
	s.cut = cut
	return cut, nil
}

// rawSize returns the size of the object's bytes.
func (h *header) rawSize() int {
	size := len(h.payload)
	if h.flags&flagDictionary != 0 {
		in := reader(h.payload) // an S2 block begins with its decoded length
		size = int(in.uvarint())
	}
	for in := reader(h.splices); in != ""; {
		switch in.uvarint() & 3 {
		case spliceName:
			size += len(h.name)
		case spliceUID:
			size += h.uidSize()
		case spliceVersion:
			size += h.versionSize()
		case spliceDigits:
			size += 2 * len(in.bytes(in.uvarint()))
		}
	}
	return size
}

func (h *header) uidSize() int {
	if h.flags&flagUUID != 0 {
		return 36
	}
	return len(h.uid)
}

func (h *header) versionSize() int {
	var buffer [32]byte
	return len(h.appendVersion(buffer[:0]))
}

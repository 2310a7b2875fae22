package store

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/evenkeel-go/evenkeel/wire"
)

// Some parts of an object are like no other's, so that no dictionary helps with them:
// name, uid and resource version, which the header has already, and the IDs of containers,
// whose hexadecimal digits fit into half the space. These are taken out of the payload
// before it is compressed, wherever they occur, and spliced in again at reading. It is
// done by their bytes alone, without a look at the format: what is put back is what was
// taken, so any place is right.
const (
	// The header's parts are looked for in so many bytes from the begin, and then again in
	// so many after the last find: to search all of a payload would take longer than to
	// compress it.
	spliceWindow, nextWindow = 2048, 384
	maxSplices               = 16

	minName, minUID, minVersion = 5, 8, 4 // shorter ones are not worth a splice

	beforeDigits         = "://" // as in containerd://0123456789abcdef...
	minDigits, maxDigits = 32, 128
)

// Splices are varints of (bytes since the last splice)<<2 | which. After that of digits
// come their bytes, with a length.
const (
	spliceName = iota
	spliceUID
	spliceVersion
	spliceDigits
	spliceKinds
)

// maxPooled limits the buffers that are kept for the next time.
const maxPooled = 256 << 10

// scratch is the buffers for writing or reading one record.
type scratch struct {
	cut     []byte // the payload without what is spliced
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

// payload is an object's bytes on their way into a record. Its slices are a scratch's.
type payload struct {
	splices    []byte
	bytes      []byte      // as they are kept
	dictionary *dictionary // nil: they are not compressed
	packedFor  *dictionary // the one that was current
}

// pack makes the payload of o.
func (s *scratch) pack(o *wire.Object, d *dictionary) payload {
	s.cutOut(o)
	p := payload{splices: s.splices, bytes: s.cut, packedFor: d}
	if packed := s.compress(d, s.cut); packed != nil {
		p.bytes, p.dictionary = packed, d
	}
	return p
}

// compress returns nil when b does not get shorter.
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

// cutOut fills cut and splices.
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
			s.splices, _ = hex.AppendDecode(s.splices, c.parts[kind]) // they are digits
		}
		s.cut = append(s.cut, o.Bytes[c.at:place]...)
		c.moveTo(place + len(c.parts[kind]))
	}
	s.cut = append(s.cut, o.Bytes[c.at:]...)
}

// cutter finds what is to be spliced, one part after the other.
type cutter struct {
	from  []byte
	at    int                 // everything before is done
	parts [spliceKinds][]byte // what is looked for; the digits are those at next
	next  [spliceKinds]int    // where each part occurs next; -1: nowhere
}

// first returns the kind of the part that comes first; -1: none comes.
func (c *cutter) first() int {
	first := -1
	for kind, place := range c.next {
		if place >= 0 && (first < 0 || place < c.next[first]) {
			first = kind
		}
	}
	return first
}

// moveTo goes on behind a part that was cut, and behind those that overlap it.
func (c *cutter) moveTo(at int) {
	c.at = at
	for kind, place := range c.next {
		if place >= 0 && place < at {
			c.find(kind)
		}
	}
}

// find sets next[kind], from at on.
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

// findDigits looks for what comes before digits, which is found faster than they are.
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

// isDigit knows the hexadecimal digits that hex.AppendEncode writes.
func isDigit(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// unpack returns the object's bytes; they are the scratch's.
func (s *scratch) unpack(h *header, d *dictionary) ([]byte, error) {
	cut, err := s.decompress(h, d)
	if err != nil || h.splices == "" {
		return cut, err
	}
	// Only what is spliced is needed as text.
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

// decompress returns the payload without the spliced parts; it is the scratch's.
func (s *scratch) decompress(h *header, d *dictionary) ([]byte, error) {
	if h.flags&flagDictionary == 0 {
		s.cut = append(s.cut[:0], h.payload...)
		return s.cut, nil
	}
	// The decoder wants a slice. Copying a few hundred bytes is cheaper than to keep slices.
	s.packed = append(s.packed[:0], h.payload...)
	cut, err := d.decode(s.cut, s.packed)
	if err != nil {
		return nil, fmt.Errorf("decompress %q: %w", h.name, err)
	}
	s.cut = cut
	return cut, nil
}

// rawSize is the size of the object's bytes.
func (h *header) rawSize() int {
	size := len(h.payload)
	if h.flags&flagDictionary != 0 {
		in := reader(h.payload) // a block of S2 begins with its decoded length
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
	if h.flags&flagNumber == 0 {
		return len(h.version)
	}
	n := 1
	for rest := h.number; rest >= 10; rest /= 10 {
		n++
	}
	return n
}

package store

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// A record is one stored state of an object: a header and the payload, in one string. So an object is one immutable
// allocation without pointers, which the garbage collector need not scan. In this order:
//
//	flags            1 byte, see below
//	namespace        number in the store's table of namespaces
//	name             length, bytes
//	uid              16 bytes for a UUID in Kubernetes' format, otherwise length, bytes
//	resourceVersion  a number if it is decimal, otherwise length, bytes
//	generation       signed number
//	state            8 bytes: facts.state
//	values           count; 8 bytes for each value of the user's indexes
//	splices          count; positions where the payload lacks name, uid or resourceVersion, see payload.go
//	payload          compressed or not
//
// Numbers are varints.
const (
	flagDictionary = 0b11 // 0: not compressed; otherwise see dictionaries.of
	flagFormat     = 0b1100
	shiftFormat    = 2
	flagDeleting   = 1 << 4
	flagUUID       = 1 << 5 // the uid is stored in 16 bytes
	flagNumber     = 1 << 6 // the resource version is stored as a number
	flagOwned      = 1 << 7 // has owner references
)

// header is a parsed record. Its strings are parts of the record. Records are parsed when a Ref is made, and not again.
type header struct {
	flags      byte
	namespace  uint32
	name       string
	uid        string // as stored
	version    string // as stored, unless it is a number
	number     uint64 // the version, if it is a number
	generation int64
	state      uint64
	values     string // 8 bytes each
	splices    string
	payload    string
}

// parse parses a record. Only appendHeader writes records, so it does not validate.
func parse(record string) header {
	h := header{flags: record[0]}
	in := reader(record[1:])
	h.namespace = uint32(in.uvarint())
	h.name = in.bytes(in.uvarint())
	if h.flags&flagUUID != 0 {
		h.uid = in.bytes(16)
	} else {
		h.uid = in.bytes(in.uvarint())
	}
	if h.flags&flagNumber != 0 {
		h.number = in.uvarint()
	} else {
		h.version = in.bytes(in.uvarint())
	}
	h.generation = in.varint()
	h.state = fixed(in.bytes(8))
	h.values = in.bytes(8 * in.uvarint())
	h.splices = in.bytes(in.uvarint())
	h.payload = string(in)
	return h
}

// parseKey parses only the key, for searches by key.
func parseKey(record string) (namespace uint32, name string) {
	in := reader(record[1:])
	namespace = uint32(in.uvarint())
	return namespace, in.bytes(in.uvarint())
}

// appendHeader appends the whole record except the payload.
func appendHeader(dst []byte, o *wire.Object, namespace uint32, f *facts, p *payload) []byte {
	flags := byte(o.Format)<<shiftFormat&flagFormat | p.dictionary.flag()
	if o.Deleting {
		flags |= flagDeleting
	}
	if f.owned {
		flags |= flagOwned
	}
	uuid, isUUID := parseUUID(string(o.UID))
	if isUUID {
		flags |= flagUUID
	}
	number, isNumber := parseNumber(o.ResourceVersion)
	if isNumber {
		flags |= flagNumber
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(namespace))
	dst = appendString(dst, o.Key.Name)
	if isUUID {
		dst = append(dst, uuid[:]...)
	} else {
		dst = appendString(dst, string(o.UID))
	}
	if isNumber {
		dst = binary.AppendUvarint(dst, number)
	} else {
		dst = appendString(dst, o.ResourceVersion)
	}
	dst = binary.AppendVarint(dst, o.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.state)
	dst = appendValues(dst, f.values)
	dst = binary.AppendUvarint(dst, uint64(len(p.splices)))
	return append(dst, p.splices...)
}

func appendValues(dst []byte, values []uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	for _, value := range values {
		dst = binary.LittleEndian.AppendUint64(dst, value)
	}
	return dst
}

func (h *header) format() wire.Format { return wire.Format(h.flags & flagFormat >> shiftFormat) }

// value returns the i-th hash of the user's indexes.
func (h *header) value(i int) uint64 { return fixed(h.values[8*i:]) }

// hasValues reports whether the hashes are equal to values.
func (h *header) hasValues(values []uint64) bool {
	if h.valueCount() != len(values) {
		return false
	}
	for i, value := range values {
		if h.value(i) != value {
			return false
		}
	}
	return true
}

func (h *header) valueCount() int { return len(h.values) / 8 }

// appendUID appends the uid in Kubernetes' format.
func (h *header) appendUID(dst []byte) []byte {
	if h.flags&flagUUID == 0 {
		return append(dst, h.uid...)
	}
	var uuid [16]byte
	copy(uuid[:], h.uid)
	for i, part := range [...][2]int{{0, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 16}} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, uuid[part[0]:part[1]])
	}
	return dst
}

func (h *header) appendVersion(dst []byte) []byte {
	if h.flags&flagNumber == 0 {
		return append(dst, h.version...)
	}
	return strconv.AppendUint(dst, h.number, 10)
}

// parseUUID parses a UUID in exactly the format that appendUID writes.
func parseUUID(s string) (uuid [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return uuid, false
	}
	n := 0
	for i := range len(s) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			continue
		}
		var digit byte
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digit = c - '0'
		case 'a' <= c && c <= 'f':
			digit = c - 'a' + 10
		default:
			return uuid, false
		}
		uuid[n/2] = uuid[n/2]<<4 | digit
		n++
	}
	return uuid, true
}

// parseNumber parses a number in exactly the format that strconv writes.
func parseNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && (s[0] != '0' || s == "0")
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader is the unread rest of a record.
type reader string

func (r *reader) uvarint() uint64 {
	var n uint64
	for i, shift := 0, 0; ; i, shift = i+1, shift+7 {
		c := (*r)[i]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			*r = (*r)[i+1:]
			return n
		}
	}
}

// varint reads the format of binary.AppendVarint.
func (r *reader) varint() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *reader) bytes(n uint64) string {
	s := string((*r)[:n])
	*r = (*r)[n:]
	return s
}

func fixed(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// maxDepth is the maximum nesting depth of JSON, as in encoding/json.
const maxDepth = 10000

// errTruncated is returned if a JSON value continues after the end of the data.
var errTruncated = errors.New("unexpected end of JSON")

// scanner validates JSON, and removes values from it. Methods move i behind the value that they read. After an error
// nothing is left to read, so that loops end.
type scanner struct {
	data  []byte
	i     int
	depth int
	err   error // the first one

	// dst contains the kept parts of data up to copied. Nothing is copied before the first cut.
	dst    []byte
	copied int
	cuts   int
}

// fail records that the data at i is not what is wanted: a text and bytes.
func (s *scanner) fail(want string, more ...byte) {
	if s.i >= len(s.data) {
		s.failWith(errTruncated)
		return
	}
	s.failWith(fmt.Errorf("invalid JSON at byte %d: want %s%s, got %s", s.i, want, more, excerpt(s.data[s.i:])))
}

func (s *scanner) failWith(err error) {
	if s.err == nil {
		s.err = err
	}
	s.i = len(s.data)
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

func (s *scanner) space() {
	if s.i < len(s.data) && s.data[s.i] > ' ' {
		return
	}
	s.i = skipSpace(s.data, s.i)
}

// peek returns the next byte that is not space, or zero at the end.
func (s *scanner) peek() byte {
	s.space()
	return s.at()
}

// skip validates and skips the value at i.
func (s *scanner) skip() {
	switch c := s.peek(); {
	case c == '"':
		s.str()
	case c == '{':
		for m := (members{}); s.next(&m); {
			s.skip()
		}
	case c == '[':
		for e := (members{}); s.element(&e); {
			s.skip()
		}
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	default:
		s.fail("a value")
	}
}

// raw skips the value at i, and returns its bytes.
func (s *scanner) raw() []byte {
	start := s.i
	s.skip()
	return s.data[start:s.i:s.i]
}

func (s *scanner) literal(want string) {
	end := min(s.i+len(want), len(s.data))
	switch {
	case !strings.HasPrefix(want, string(s.data[s.i:end])):
		s.fail(want)
	case end < s.i+len(want):
		s.failWith(errTruncated)
	default:
		s.i = end
	}
}

// accept skips one of the bytes, if it is at i.
func (s *scanner) accept(a, b byte) bool {
	if s.i < len(s.data) && (s.data[s.i] == a || s.data[s.i] == b) {
		s.i++
		return true
	}
	return false
}

// digits skips digits. There must be at least one.
func (s *scanner) digits() {
	start := s.i
	for s.i < len(s.data) && s.data[s.i] >= '0' && s.data[s.i] <= '9' {
		s.i++
	}
	if s.i == start {
		s.fail("a digit")
	}
}

// number skips a number. At the end of the data a number may be incomplete, so it fails there with errTruncated. A
// complete object cannot end with a number.
func (s *scanner) number() {
	s.accept('-', '-')
	if !s.accept('0', '0') {
		s.digits()
	}
	if s.accept('.', '.') {
		s.digits()
	}
	if s.accept('e', 'E') {
		s.accept('+', '-')
		s.digits()
	}
	if s.i >= len(s.data) {
		s.failWith(errTruncated)
	}
}

// text is the content of a string between its quotes.
type text struct {
	start, end int
	// plain is true if the content is equal to the string: no escapes, only ASCII.
	plain bool
}

// str skips the string at i.
func (s *scanner) str() text {
	t := text{start: s.i + 1, plain: true}
	data := s.data
	i := t.start
	for {
		// Eight bytes at a time, until one of them ends the string or is special.
		for i+8 <= len(data) {
			special := specialBytes(binary.LittleEndian.Uint64(data[i:]))
			if special != 0 {
				i += bits.TrailingZeros64(special) / 8
				break
			}
			i += 8
		}
		if i >= len(data) {
			s.failWith(errTruncated)
			return text{plain: true}
		}
		switch c := data[i]; {
		case c == '"':
			t.end, s.i = i, i+1
			return t
		case c == '\\':
			t.plain = false
			s.i = i + 1
			s.escape()
			i = s.i
		case c < ' ':
			s.i = i
			s.fail("no control character in a string")
			return text{plain: true}
		case c >= 0x80:
			t.plain = false
			i++
		default:
			i++
		}
	}
}

// specialBytes sets the top bit of the first byte in w that is a quote, a backslash, a control character or not ASCII.
// (The bits of higher bytes may be wrong.)
func specialBytes(w uint64) uint64 {
	const low, high = 0x0101010101010101, 0x8080808080808080
	quote := w ^ low*'"'
	backslash := w ^ low*'\\'
	return ((quote - low) | (backslash - low) | (w - low*' ') | w) & high
}

// escape skips the rest of an escape sequence.
func (s *scanner) escape() {
	digits := 0
	switch s.at() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		digits = 4
	default:
		s.fail("an escape")
		return
	}
	s.i++
	for range digits {
		c := s.at()
		if lower := c | 0x20; (c < '0' || c > '9') && (lower < 'a' || lower > 'f') {
			s.fail("a hexadecimal digit")
			return
		}
		s.i++
	}
}

// at returns the byte at i, or zero at the end.
func (s *scanner) at() byte {
	if s.i >= len(s.data) {
		return 0
	}
	return s.data[s.i]
}

// members is the position in an object or array.
type members struct {
	n int
	// key is that of the current member of an object.
	key text
	// sep is the start of the current member, with the comma before it.
	sep int
	// kept is the number of earlier members that were not cut.
	kept int
}

// next moves to the next member of the object at i: it skips the key and the colon. At the end it skips the bracket.
func (s *scanner) next(m *members) (more bool) {
	if !s.advance(m, '{', '}') {
		return false
	}
	if s.peek() != '"' {
		s.fail("a key")
		return false
	}
	m.key = s.str()
	if s.peek() != ':' {
		s.fail(`":"`)
		return false
	}
	s.i++
	s.space()
	return true
}

// element moves to the next element of the array at i.
func (s *scanner) element(m *members) (more bool) { return s.advance(m, '[', ']') }

func (s *scanner) advance(m *members, open, end byte) (more bool) {
	c := s.peek()
	if m.n == 0 {
		if c != open {
			s.fail("", open)
			return false
		}
		if s.depth++; s.depth > maxDepth {
			s.failWith(fmt.Errorf("invalid JSON: nested deeper than %d", maxDepth))
			return false
		}
		s.i++
		m.sep = s.i
		c = s.peek()
	}
	switch {
	case c == end:
		s.i++
		s.depth--
		return false
	case m.n == 0:
	case c == ',':
		m.sep = s.i
		s.i++
		s.space()
	default:
		s.fail(`"," or `, end)
		return false
	}
	m.n++
	return true
}

// remove removes the member that was just skipped from the object.
func (s *scanner) remove(m *members) {
	if m.kept > 0 || m.n == 1 {
		s.flush(m.sep)
	}
	s.copied = s.i
	s.cuts++
}

// keep marks the current member as kept. It must be called before anything in the member is cut.
func (s *scanner) keep(m *members) {
	if m.kept == 0 && m.n > 1 {
		s.copied = m.sep + 1 // all earlier members were cut, so is the comma
	}
	m.kept++
}

// replace replaces the member that was just skipped by another one, which is kept: keep must not be called for it.
func (s *scanner) replace(m *members, key string, value []byte) {
	s.remove(m)
	if m.kept > 0 {
		s.dst = append(s.dst, ',')
	}
	s.dst = append(append(append(append(s.dst, '"'), key...), '"', ':'), value...)
	m.kept++
}

func (s *scanner) flush(end int) {
	s.dst = append(s.dst, s.data[s.copied:end]...)
	s.copied = end
}

// begin starts cutting at the value at i.
func (s *scanner) begin(dst []byte) {
	s.dst, s.copied, s.cuts = dst[:0], s.i, 0
}

// finish returns the value from start to i without the cut parts.
func (s *scanner) finish(start int) []byte {
	if s.cuts == 0 {
		return s.data[start:s.i:s.i]
	}
	s.flush(s.i)
	return s.dst
}

// endOfData returns the error of the scan, or one unless only space follows.
func (s *scanner) endOfData() error {
	if s.peek() != 0 || s.i < len(s.data) {
		s.fail("nothing more")
	}
	return s.err
}

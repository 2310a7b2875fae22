package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// maxDepth is the maximum nesting depth of JSON, as in encoding/json.
const maxDepth = 10000

// errTruncated is returned if a JSON value continues after the end of the data.
var errTruncated = errors.New("unexpected end of JSON")

// scanner validates JSON, and removes values from it. Methods move i behind the value that they read.
type scanner struct {
	data  []byte
	i     int
	depth int

	// dst contains the kept parts of data up to copied. Nothing is copied before the first cut.
	dst    []byte
	copied int
	cuts   int
}

func (s *scanner) fail(want string) error {
	if s.i >= len(s.data) {
		return errTruncated
	}
	return fmt.Errorf("invalid JSON at byte %d: want %s, got %s", s.i, want, excerpt(s.data[s.i:]))
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
	if s.i >= len(s.data) {
		return 0
	}
	return s.data[s.i]
}

// skip validates and skips the value at i.
func (s *scanner) skip() error {
	switch c := s.peek(); {
	case c == '"':
		_, err := s.str()
		return err
	case c == '{':
		var m members
		for {
			if _, more, err := s.next(&m); err != nil || !more {
				return err
			}
			if err := s.skip(); err != nil {
				return err
			}
		}
	case c == '[':
		var e members
		for {
			if more, err := s.element(&e); err != nil || !more {
				return err
			}
			if err := s.skip(); err != nil {
				return err
			}
		}
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	default:
		return s.fail("a value")
	}
}

func (s *scanner) literal(want string) error {
	for j := range len(want) {
		if s.i+j >= len(s.data) {
			return errTruncated
		}
		if s.data[s.i+j] != want[j] {
			return s.fail(want)
		}
	}
	s.i += len(want)
	return nil
}

// digits skips digits. There must be at least one.
func (s *scanner) digits() error {
	start := s.i
	for s.i < len(s.data) && s.data[s.i] >= '0' && s.data[s.i] <= '9' {
		s.i++
	}
	if s.i == start {
		return s.fail("a digit")
	}
	return nil
}

// number skips a number. At the end of the data a number may be incomplete, so it returns errTruncated there. A
// complete object cannot end with a number.
func (s *scanner) number() error {
	if s.data[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.data) && s.data[s.i] == '0' {
		s.i++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.i < len(s.data) && s.data[s.i] == '.' {
		s.i++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.i < len(s.data) && (s.data[s.i] == 'e' || s.data[s.i] == 'E') {
		s.i++
		if s.i < len(s.data) && (s.data[s.i] == '+' || s.data[s.i] == '-') {
			s.i++
		}
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.i >= len(s.data) {
		return errTruncated
	}
	return nil
}

// text is the content of a string between its quotes.
type text struct {
	start, end int
	// plain is true if the content is equal to the string: no escapes, only ASCII.
	plain bool
}

// str skips the string at i.
func (s *scanner) str() (text, error) {
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
			s.i = i
			return t, errTruncated
		}
		switch c := data[i]; {
		case c == '"':
			t.end, s.i = i, i+1
			return t, nil
		case c == '\\':
			t.plain = false
			s.i = i + 1
			if err := s.escape(); err != nil {
				return t, err
			}
			i = s.i
		case c < ' ':
			s.i = i
			return t, s.fail("no control character in a string")
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
func (s *scanner) escape() error {
	if s.i >= len(s.data) {
		return errTruncated
	}
	switch s.data[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		s.i++
		for range 4 {
			if s.i >= len(s.data) {
				return errTruncated
			}
			c := s.data[s.i] | 0x20
			if (s.data[s.i] < '0' || s.data[s.i] > '9') && (c < 'a' || c > 'f') {
				return s.fail("a hexadecimal digit")
			}
			s.i++
		}
		return nil
	default:
		return s.fail("an escape")
	}
}

// members is the position in an object or array.
type members struct {
	n int
	// sep is the start of the current member, with the comma before it.
	sep int
	// kept is the number of earlier members that were not cut.
	kept int
}

// next moves to the next member of the object at i: it skips the key and the colon. At the end it skips the bracket.
func (s *scanner) next(m *members) (key text, more bool, err error) {
	more, err = s.advance(m, '{', '}')
	if err != nil || !more {
		return key, more, err
	}
	if s.peek() != '"' {
		return key, false, s.fail("a key")
	}
	if key, err = s.str(); err != nil {
		return key, false, err
	}
	if s.peek() != ':' {
		return key, false, s.fail(`":"`)
	}
	s.i++
	s.space()
	return key, true, nil
}

// element moves to the next element of the array at i.
func (s *scanner) element(m *members) (more bool, err error) {
	return s.advance(m, '[', ']')
}

func (s *scanner) advance(m *members, open, end byte) (more bool, err error) {
	c := s.peek()
	if m.n == 0 {
		if c != open {
			return false, s.fail(string(open))
		}
		if s.depth++; s.depth > maxDepth {
			return false, fmt.Errorf("invalid JSON: nested deeper than %d", maxDepth)
		}
		s.i++
		m.sep = s.i
		c = s.peek()
		if c == end {
			s.i++
			s.depth--
			return false, nil
		}
	} else {
		switch c {
		case end:
			s.i++
			s.depth--
			return false, nil
		case ',':
			m.sep = s.i
			s.i++
			s.space()
		default:
			return false, s.fail(`"," or ` + string(end))
		}
	}
	m.n++
	return true, nil
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
	if m.kept > 0 || m.n == 1 {
		s.flush(m.sep)
	}
	if m.kept > 0 {
		s.dst = append(s.dst, ',')
	}
	s.dst = append(append(append(append(s.dst, '"'), key...), '"', ':'), value...)
	s.copied = s.i
	s.cuts++
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

// endOfData returns an error unless only space follows.
func (s *scanner) endOfData() error {
	if s.peek() != 0 || s.i < len(s.data) {
		return s.fail("nothing more")
	}
	return nil
}

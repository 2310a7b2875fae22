package wire

import (
	"bytes"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonHead is a JSON list without its items, as far as the last comma. It distinguishes a Status from a list.
type jsonHead struct {
	doc   []byte
	items bool
}

// end returns the list's metadata, or an error if the document is not a list.
func (h *jsonHead) end() (meta metav1.ListMeta, err error) {
	doc := append(bytes.TrimSuffix(h.doc, []byte{','}), '}')
	var list struct {
		metav1.TypeMeta `json:",inline"`

		Metadata metav1.ListMeta `json:"metadata"`
	}
	err = utiljson.Unmarshal(doc, &list)
	if list.Kind == statusKind {
		status := &metav1.Status{}
		if err := utiljson.Unmarshal(doc, status); err != nil {
			return meta, fmt.Errorf("decode a status: %w", err)
		}
		return meta, statusError(status)
	}
	switch {
	case err != nil:
		return meta, fmt.Errorf("decode the list's kind and metadata: %w", err)
	case h.items:
		return list.Metadata, nil // a list's kind may have any name
	case list.Kind == "": // accepting it as an empty list would empty the cache
		return meta, fmt.Errorf("want a list, got an object with neither kind nor items: %s", excerpt(doc))
	}
	return list.Metadata, wantList(list.Kind)
}

// readJSON reads a JSON list from the stream.
func (l *listReader) readJSON() {
	head := jsonHead{doc: []byte{'{'}}
	l.punctuation('{')
	for n := 0; l.next(n, '}'); n++ {
		l.member(&head)
	}
	if l.err == nil {
		l.meta, l.err = head.end()
	}
}

func (l *listReader) member(head *jsonHead) {
	raw := l.value()
	if l.err != nil {
		return
	}
	var key string
	if raw[0] != '"' {
		l.fail("invalid JSON: want a key, got %s", excerpt(raw))
	} else if err := utiljson.Unmarshal(raw, &key); err != nil {
		l.fail("a key: %w", err)
	}
	raw = append(bytes.Clone(raw), ':')
	if l.punctuation(':'); l.err != nil {
		return
	}
	if key == "items" {
		if head.items {
			l.fail(`the list has duplicate "items"`)
		}
		head.items = true
		l.readJSONItems()
		return
	}
	value := l.value()
	if l.err != nil {
		l.err = fmt.Errorf("the list's %s: %w", excerpt([]byte(key)), l.err)
	}
	if len(head.doc)+len(raw)+len(value) > MaxObjectBytes {
		l.fail("the list without its items is larger than the limit of %d bytes", MaxObjectBytes)
		return
	}
	head.doc = append(append(append(head.doc, raw...), value...), ',')
}

func (l *listReader) readJSONItems() {
	if l.peek() != '[' {
		if value := l.value(); l.err == nil && string(value) != "null" {
			l.fail("want an array of items, got %s", excerpt(value))
		}
		return
	}
	l.win.consume(1)
	for n := 0; l.next(n, ']'); n++ {
		if l.scan(l.p.scanObject); l.err != nil {
			l.err = fmt.Errorf("an item: %w", l.err)
			return
		}
		l.item()
	}
}

// peek waits for the next byte that is not space. It returns zero after an error.
func (l *listReader) peek() byte {
	if l.err != nil {
		return 0
	}
	c, err := l.win.peekByte()
	if err != nil {
		l.err = unexpected(err)
	}
	return c
}

// punctuation waits for c and consumes it.
func (l *listReader) punctuation(c byte) {
	if got := l.peek(); got != c {
		l.fail("invalid JSON: want %q, got %s", c, excerpt(l.win.data()))
		return
	}
	l.win.consume(1)
}

// next waits for member number n of an object or array with the closing bracket end. It consumes the comma before the
// member, or the bracket.
func (l *listReader) next(n int, end byte) (more bool) {
	switch {
	case l.peek() == end:
		l.win.consume(1)
		return false
	case n > 0:
		l.punctuation(',')
	}
	return l.err == nil
}

// value reads one value and returns its bytes, which are valid until the next read.
func (l *listReader) value() (value []byte) {
	l.scan(func(s *scanner) { value = s.raw() })
	return value
}

// scan calls read with the data that has arrived. While the data is incomplete, it repeats with at least twice as much.
func (l *listReader) scan(read func(*scanner)) {
	for l.peek(); l.err == nil; {
		s := scanner{data: l.win.data(), depth: 1}
		read(&s)
		if s.err == nil {
			l.win.consume(s.i)
			return
		}
		if !errors.Is(s.err, errTruncated) {
			l.err = s.err
			return
		}
		length := len(s.data)
		if length > MaxObjectBytes {
			l.fail("a value is larger than the limit of %d bytes", MaxObjectBytes)
		}
		for l.err == nil && len(l.win.data()) < 2*length {
			if err := l.win.fill(); err == nil {
				continue
			} else if len(l.win.data()) == length {
				l.fail("a value, of which %d bytes have arrived: %w", length, unexpected(err))
			}
			break
		}
	}
}

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
func (l *listReader) readJSON() error {
	if err := l.punctuation('{'); err != nil {
		return err
	}
	head := jsonHead{doc: []byte{'{'}}
	for n := 0; ; n++ {
		if more, err := l.next(n, '}'); err != nil {
			return err
		} else if !more {
			l.meta, err = head.end()
			return err
		}
		if err := l.member(&head); err != nil {
			return err
		}
	}
}

func (l *listReader) member(head *jsonHead) error {
	raw, err := l.value()
	if err != nil {
		return err
	}
	var key string
	if raw[0] != '"' {
		return fmt.Errorf("invalid JSON: want a key, got %s", excerpt(raw))
	}
	if err := utiljson.Unmarshal(raw, &key); err != nil {
		return fmt.Errorf("a key: %w", err)
	}
	raw = append(bytes.Clone(raw), ':')
	if err := l.punctuation(':'); err != nil {
		return err
	}
	if key == "items" {
		if head.items {
			return errors.New(`the list has duplicate "items"`)
		}
		head.items = true
		return l.readJSONItems()
	}
	value, err := l.value()
	if err != nil {
		return fmt.Errorf("the list's %s: %w", excerpt([]byte(key)), err)
	}
	if len(head.doc)+len(raw)+len(value) > MaxObjectBytes {
		return fmt.Errorf("the list without its items is larger than the limit of %d bytes", MaxObjectBytes)
	}
	head.doc = append(append(append(head.doc, raw...), value...), ',')
	return nil
}

func (l *listReader) readJSONItems() error {
	c, err := l.win.peekByte()
	if err != nil {
		return unexpected(err)
	}
	if c != '[' {
		value, err := l.value()
		if err == nil && string(value) != "null" {
			err = fmt.Errorf("want an array of items, got %s", excerpt(value))
		}
		return err
	}
	l.win.consume(1)
	for n := 0; ; n++ {
		if more, err := l.next(n, ']'); err != nil || !more {
			return err
		}
		if err := l.scan(l.p.scanObject); err != nil {
			return fmt.Errorf("an item: %w", err)
		}
		if err := l.item(); err != nil {
			return err
		}
	}
}

// punctuation waits for c and consumes it.
func (l *listReader) punctuation(c byte) error {
	got, err := l.win.peekByte()
	if err != nil {
		return unexpected(err)
	}
	if got != c {
		return fmt.Errorf("invalid JSON: want %q, got %s", c, excerpt(l.win.data()))
	}
	l.win.consume(1)
	return nil
}

// next waits for member number n of an object or array with the closing bracket end. It consumes the comma before the
// member, or the bracket.
func (l *listReader) next(n int, end byte) (more bool, err error) {
	got, err := l.win.peekByte()
	if err != nil {
		return false, unexpected(err)
	}
	if got == end {
		l.win.consume(1)
		return false, nil
	}
	if n == 0 {
		return true, nil
	}
	return true, l.punctuation(',')
}

// value reads one value and returns its bytes, which are valid until the next read.
func (l *listReader) value() ([]byte, error) {
	var value []byte
	err := l.scan(func(s *scanner) { value = s.raw() })
	return value, err
}

// scan calls read with the data that has arrived. While the data is incomplete, it repeats with at least twice as much.
func (l *listReader) scan(read func(*scanner)) error {
	if _, err := l.win.peekByte(); err != nil {
		return unexpected(err)
	}
	for {
		s := scanner{data: l.win.data(), depth: 1}
		read(&s)
		if s.err == nil {
			l.win.consume(s.i)
			return nil
		}
		if !errors.Is(s.err, errTruncated) {
			return s.err
		}
		length := len(s.data)
		if length > MaxObjectBytes {
			return fmt.Errorf("a value is larger than the limit of %d bytes", MaxObjectBytes)
		}
		for len(l.win.data()) < 2*length {
			if err := l.win.fill(); err != nil {
				if len(l.win.data()) > length {
					break
				}
				return fmt.Errorf("a value, of which %d bytes have arrived: %w", length, unexpected(err))
			}
		}
	}
}

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

const statusKind = "Status"

// Event is one event of a watch.
type Event struct {
	Type   watch.EventType
	Object *Object        // Added, Modified, Deleted, Bookmark
	Status *metav1.Status // Error
}

// EventReader reads the events of a watch response: JSON documents or protobuf frames, depending on the first byte.
// CBOR is not supported; the error says which option to set.
//
// It reads as much as has arrived, and keeps one buffer that grows to the size of the largest event. It is not safe for
// concurrent use.
type EventReader struct {
	win    window
	cut    *Cut
	p      parser
	scan   scanner // a field, because a local one would be allocated for each event
	format encoding
	err    error // the first error, which all later calls return
}

// NewEventReader returns a reader of body. It removes the fields in cut from the objects, except from bookmarks, whose
// annotations have a meaning: one ends a streamed list.
func NewEventReader(body io.Reader, cut *Cut) *EventReader {
	return &EventReader{
		win: window{src: body}, cut: cut,
		p: parser{names: interner{known: map[string]string{}}},
	}
}

// Next waits for the next event. Its Object is valid until the next call.
//
// Errors: io.EOF, unwrapped, at the end of the stream; a wrapped io.ErrUnexpectedEOF if the stream ends within an
// event; read errors; invalid events. After an error, every call returns the same error. An event of type Error is not
// an error of the reader.
func (r *EventReader) Next() (Event, error) {
	if r.err != nil {
		return Event{}, r.err
	}
	e, err := r.next()
	if err != nil {
		if err != io.EOF { //nolint:errorlint // only an unwrapped io.EOF is a regular end
			err = fmt.Errorf("read a watch event at byte %d of the stream: %w", r.win.passed, err)
		}
		r.err = err
		return Event{}, err
	}
	return e, nil
}

func (r *EventReader) next() (Event, error) {
	if r.format == 0 {
		if err := r.start(); err != nil {
			return Event{}, err
		}
	}
	if r.format == encodingProtobuf {
		return r.nextFrame()
	}
	return r.nextDocument()
}

func (r *EventReader) start() (err error) {
	if err := r.win.wait(); err != nil {
		return err
	}
	// A frame begins with its length, and its first byte is zero below 16 MiB.
	r.format, err = sniff(r.win.data(), func(c byte) bool { return c <= MaxObjectBytes>>24 })
	return err
}

// nextFrame reads a length-delimited WatchEvent.
func (r *EventReader) nextFrame() (Event, error) {
	const header = 4
	if err := r.win.wait(); err != nil {
		return Event{}, err
	}
	if err := r.win.need(header); err != nil {
		return Event{}, fmt.Errorf("the length of a frame: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(r.win.data()))
	if size > MaxObjectBytes {
		return Event{}, fmt.Errorf("a frame of %d bytes is larger than the limit of %d", size, MaxObjectBytes)
	}
	r.win.consume(header)
	if err := r.win.need(int(size)); err != nil {
		return Event{}, fmt.Errorf("a frame of %d bytes, of which %d have arrived: %w", size, len(r.win.data()), err)
	}
	frame := r.win.data()[:size]
	r.win.consume(int(size))
	return r.frame(frame)
}

func (r *EventReader) frame(frame []byte) (Event, error) {
	kind, raw, ok := plainWatchEvent(frame)
	if !ok {
		if len(frame) == 0 {
			return Event{}, errors.New("an empty frame")
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(frame); err != nil {
			return Event{}, fmt.Errorf("decode the frame: %w", err)
		}
		kind, raw = watch.EventType(event.Type), event.Object.Raw
	}
	return r.event(kind, raw, r.p.parseEnvelope)
}

// plainWatchEvent parses a metav1.WatchEvent in the usual encoding.
func plainWatchEvent(frame []byte) (kind watch.EventType, raw []byte, ok bool) {
	text, extension, ok := readEntry(frame)
	object := fields{b: extension}
	if !ok || !object.nextPlain(1) || object.end != len(extension) {
		return "", nil, false
	}
	return eventType(text), object.content(), true
}

// eventType returns constants for the known types, so that no string is allocated.
func eventType(b []byte) watch.EventType {
	for _, known := range [...]watch.EventType{
		watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error,
	} {
		if string(b) == string(known) {
			return known
		}
	}
	return watch.EventType(b)
}

func hasObject(kind watch.EventType) bool {
	return kind == watch.Added || kind == watch.Modified || kind == watch.Deleted || kind == watch.Bookmark
}

// event returns the event with an object's bytes.
func (r *EventReader) event(kind watch.EventType, raw []byte, parse func([]byte) error) (Event, error) {
	switch {
	case hasObject(kind):
		if len(raw) == 0 {
			return Event{}, fmt.Errorf("an event of type %s without an object", kind)
		}
		r.setCut(kind)
		if err := parse(raw); err != nil {
			return Event{}, fmt.Errorf("the object of a %s event: %w", kind, err)
		}
		return Event{Type: kind, Object: &r.p.obj}, nil
	case kind == watch.Error:
		status, err := decodeStatus(raw)
		if err != nil {
			return Event{}, fmt.Errorf("the status of an %s event: %w", kind, err)
		}
		return Event{Type: kind, Status: status}, nil
	default:
		return Event{}, fmt.Errorf("unknown type of event %s", excerpt([]byte(kind)))
	}
}

// setCut sets the cut of the object of an event.
func (r *EventReader) setCut(kind watch.EventType) {
	if r.p.cut = r.cut; kind == watch.Bookmark {
		r.p.cut = nil
	}
}

// decodeStatus decodes a metav1.Status in either format.
func decodeStatus(data []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	decode := func(raw []byte) error { return utiljson.Unmarshal(raw, status) }
	var kind metav1.TypeMeta
	raw := data
	var err error
	if bytes.HasPrefix(data, []byte(protoPrefix)) {
		kind.Kind, raw, err = openEnvelope(data)
		decode = status.Unmarshal
	} else {
		err = utiljson.Unmarshal(data, &kind)
	}
	if err == nil && kind.Kind != "" && kind.Kind != statusKind {
		return nil, fmt.Errorf("want a Status, got another kind: %s", excerpt(data))
	}
	if err == nil {
		err = decode(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	status.TypeMeta = metav1.TypeMeta{Kind: statusKind, APIVersion: "v1"}
	return status, nil
}

// nextDocument reads one JSON document, as soon as it is complete. Servers end each document with a newline, so the
// data before the first newline is tried first. The end of other documents is searched.
func (r *EventReader) nextDocument() (Event, error) {
	if _, err := r.win.peekByte(); err != nil {
		return Event{}, err
	}
	var readErr error
	var end documentEnd
	for searched, tried := 0, false; ; {
		data, size := r.win.data(), 0
		if n := bytes.IndexByte(data[searched:], '\n'); n >= 0 && !tried {
			size, tried = searched+n+1, true
		} else if size = end.in(data); size == 0 && readErr != nil {
			size = len(data)
		}
		if size > 0 {
			e, used, err := r.document(data[:size])
			if !errors.Is(err, errTruncated) {
				r.win.consume(used)
				return e, err
			}
			if size < len(data) {
				continue
			}
		}
		if len(data) > MaxObjectBytes {
			return Event{}, fmt.Errorf("a JSON document is larger than the limit of %d bytes", MaxObjectBytes)
		}
		if readErr != nil {
			return Event{}, fmt.Errorf("a JSON document, of which %d bytes have arrived: %w", len(data),
				unexpected(readErr))
		}
		searched = len(data)
		readErr = r.win.fill()
	}
}

// documentEnd finds the end of a JSON document that arrives in pieces.
type documentEnd struct {
	at, depth int
	inString  bool
}

// in returns the length of the document at the start of data, or 0 while its last bracket has not arrived. Later calls
// continue where the last one ended.
func (d *documentEnd) in(data []byte) int {
	for ; d.at < len(data); d.at++ {
		switch c := data[d.at]; {
		case c == '"':
			d.inString = !d.inString
		case c == '\\' && d.inString:
			d.at++ // the next byte, which may not have arrived yet
		case d.inString:
		case c == '{', c == '[':
			d.depth++
		case c == '}', c == ']':
			if d.depth--; d.depth <= 0 {
				d.at++
				return d.at
			}
		}
	}
	return 0
}

// document reads the document at the start of data, and returns its length.
func (r *EventReader) document(data []byte) (Event, int, error) {
	s := &r.scan
	*s = scanner{data: data}
	kind, ok := r.plainDocument(s)
	if s.err != nil {
		return Event{}, 0, s.err
	}
	if ok {
		return Event{Type: kind, Object: &r.p.obj}, s.i, nil
	}
	*s = scanner{data: data}
	document := s.raw()
	if s.err != nil {
		return Event{}, 0, s.err
	}
	var event metav1.WatchEvent
	if err := utiljson.Unmarshal(document, &event); err != nil {
		return Event{}, s.i, fmt.Errorf("decode: %w", err)
	}
	e, err := r.event(watch.EventType(event.Type), event.Object.Raw, r.p.parseJSON)
	return e, s.i, err
}

// plainDocument parses an event in the usual encoding: the type, and then an object.
func (r *EventReader) plainDocument(s *scanner) (kind watch.EventType, ok bool) {
	var m members
	if !s.next(&m) || string(s.key(m.key)) != "type" || s.peek() != '"' {
		return "", false
	}
	t := s.str()
	kind = eventType(s.data[t.start:t.end])
	if !hasObject(kind) || !s.next(&m) || string(s.key(m.key)) != "object" || s.peek() != '{' {
		return "", false
	}
	r.setCut(kind)
	r.p.scanObject(s)
	return kind, !s.next(&m)
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReadList reads a list response while it arrives, in JSON or protobuf, and calls each for every item. An item is valid
// during the call. The list is never in memory as a whole. The maximum size of an item is MaxObjectBytes. Body is read
// to its end.
//
// Items of JSON lists may lack apiVersion and kind: a Decoder sets them.
//
// Errors: the error of each, unwrapped; an API status error (see apierrors.IsGone and others) if the body is a Status
// instead of a list; data that is not a list; data after the list. Items may have been passed to each before an error.
func ReadList(body io.Reader, cut *Cut, each func(*Object) error) (metav1.ListMeta, error) {
	l := listReader{
		win:  window{src: body},
		p:    parser{cut: cut, names: interner{known: map[string]string{}}},
		each: each,
	}
	l.read()
	switch {
	case l.isCallers:
		return metav1.ListMeta{}, l.err
	case l.err != nil:
		return metav1.ListMeta{}, fmt.Errorf("read a list at byte %d, after %d items: %w", l.win.passed, l.items, l.err)
	}
	return l.meta, nil
}

type listReader struct {
	win   window
	p     parser
	each  func(*Object) error
	items int
	meta  metav1.ListMeta
	// err is the first error: nothing is read after it. isCallers is true if it is of each.
	err       error
	isCallers bool
}

// fail sets the error, unless there is one.
func (l *listReader) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
}

func (l *listReader) read() {
	if err := l.win.fill(); err != nil {
		l.err = unexpected(err)
		return
	}
	format, err := sniff(l.win.data(), func(c byte) bool { return c == protoPrefix[0] })
	switch {
	case err != nil:
		l.err = err
	case format == encodingProtobuf:
		l.readProto()
	default:
		l.readJSON()
	}
	if l.err != nil {
		return
	}
	if c, err := l.win.peekByte(); err == nil {
		l.fail("%q follows the list", c)
	} else if !errors.Is(err, io.EOF) {
		l.err = err
	}
}

func (l *listReader) item() {
	l.items++
	l.err = l.each(&l.p.obj)
	l.isCallers = l.err != nil
}

// need waits until n bytes have arrived.
func (l *listReader) need(n int) bool {
	if l.err == nil {
		l.err = l.win.need(n)
	}
	return l.err == nil
}

// varint reads a varint from the stream.
func (l *listReader) varint() uint64 {
	for n := 1; n <= binary.MaxVarintLen64 && l.need(n); n++ {
		if v, size := readVarint(l.win.data()[:n], 0); size > 0 {
			l.win.consume(size)
			return v
		}
	}
	l.fail("a varint of more than 64 bits")
	return 0
}

func (l *listReader) length(of string) uint64 {
	if l.err != nil {
		return 0
	}
	size := l.varint()
	if l.err != nil {
		l.err = fmt.Errorf("the length of %s: %w", of, l.err)
	}
	return size
}

// bytes reads a field's content, which is valid until the next read.
func (l *listReader) bytes(what string) []byte {
	size := l.length(what)
	if size > MaxObjectBytes {
		l.fail("%s of %d bytes is larger than the limit of %d", what, size, MaxObjectBytes)
	}
	if l.err != nil {
		return nil
	}
	if err := l.win.need(int(size)); err != nil {
		l.fail("%s of %d bytes, of which %d have arrived: %w", what, size, len(l.win.data()), err)
		return nil
	}
	content := l.win.data()[:size]
	l.win.consume(int(size))
	return content
}

// message reads a field's content and decodes it.
func (l *listReader) message(what string, into interface{ Unmarshal([]byte) error }) {
	content := l.bytes(what)
	if l.err != nil {
		return
	}
	if err := into.Unmarshal(content); err != nil {
		l.fail("decode %s: %w", what, err)
	}
}

// readProto reads an envelope from the stream.
func (l *listReader) readProto() {
	l.err = l.p.cut.checkProto()
	if !l.need(len(protoPrefix)) {
		return
	}
	if got := l.win.data()[:len(protoPrefix)]; string(got) != protoPrefix {
		l.fail("want a list that starts with %q, got %s", protoPrefix, excerpt(l.win.data()))
		return
	}
	l.win.consume(len(protoPrefix))
	var kind runtime.TypeMeta
	for lists := 0; l.err == nil; {
		switch err := l.win.wait(); {
		case errors.Is(err, io.EOF) && lists == 0: // even an empty list has metadata
			l.fail("the list in the envelope: %w", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			l.err = wantList(kind.Kind)
			return
		case err != nil:
			l.err = err
		default:
			l.envelopeField(&kind, &lists)
		}
	}
}

// wantList returns an error unless kind is a list. The kinds of all protobuf lists end with "List".
func wantList(kind string) error {
	if kind != "" && !strings.HasSuffix(kind, "List") {
		return fmt.Errorf("want a list, got a %s", excerpt([]byte(kind)))
	}
	return nil
}

// statusError returns the error for a Status instead of a list.
func statusError(status *metav1.Status) error {
	if status.Message == "" {
		status.Message = fmt.Sprintf("the server responded with a Status instead of a list: status %q, code "+
			"%d, reason %q", status.Status, status.Code, status.Reason)
	}
	return apierrors.FromObject(status)
}

// envelopeField reads one field of the envelope.
func (l *listReader) envelopeField(kind *runtime.TypeMeta, lists *int) {
	switch tag := l.varint(); {
	case l.err != nil:
	case tag == 1<<3|wireBytes:
		l.message("the kind", kind)
	case tag == 2<<3|wireBytes && kind.Kind == statusKind:
		status := &metav1.Status{}
		if l.message("the status", status); l.err == nil {
			l.err = statusError(status)
		}
	case tag == 2<<3|wireBytes:
		if *lists++; *lists > 1 {
			l.fail("two lists in one envelope")
			return
		}
		if l.err = wantList(kind.Kind); l.err == nil {
			l.readProtoList()
		}
	case tag == 3<<3|wireBytes || tag == 4<<3|wireBytes:
		l.bytes("the envelope's content type")
	default:
		l.fail("an unknown field of the envelope, with the tag %d", tag)
	}
}

// readProtoList reads the list's message.
func (l *listReader) readProtoList() {
	size := l.length("the list")
	begin := l.win.passed
	end := begin + int64(min(size, 1<<62))
	for l.err == nil && l.win.passed < end {
		switch tag := l.varint(); {
		case l.err != nil:
			l.err = fmt.Errorf("a list of %d bytes, of which %d have arrived: %w", size, l.win.passed-begin, l.err)
		case tag == 1<<3|wireBytes:
			l.message("the list's metadata", &l.meta)
		case tag == 2<<3|wireBytes:
			l.protoItem(end)
		default:
			l.skipField(tag)
		}
	}
	if l.win.passed != end {
		l.fail("a field is longer than the list")
	}
}

func (l *listReader) protoItem(end int64) {
	content := l.bytes("an item")
	if l.win.passed > end {
		l.fail("an item is longer than the list")
	}
	if l.err != nil {
		return
	}
	if err := l.p.parseProto(content); err != nil {
		l.fail("an item: %w", err)
		return
	}
	l.item()
}

// skipField skips a field of the list that is not needed.
func (l *listReader) skipField(tag uint64) {
	var size uint64
	switch tag & 7 {
	case wireVarint:
		l.varint()
	case wireBytes:
		size = l.varint()
	case wireFixed64:
		size = 8
	case wireFixed32:
		size = 4
	default:
		l.fail("a field of the list with the tag %d, which cannot be skipped", tag)
	}
	switch {
	case tag>>3 <= 2:
		l.fail("a field of the list with the tag %d", tag)
	case size > MaxObjectBytes:
		l.fail("a field of %d bytes is larger than the limit of %d", size, MaxObjectBytes)
	case l.need(int(size)):
		l.win.consume(int(size))
	}
}

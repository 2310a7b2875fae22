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
	err := l.read()
	var own *eachError
	switch {
	case errors.As(err, &own):
		return metav1.ListMeta{}, own.err
	case err != nil:
		return metav1.ListMeta{}, fmt.Errorf("read a list at byte %d, after %d items: %w", l.win.passed, l.items, err)
	}
	return l.meta, nil
}

// eachError marks an error of the caller's function, which is returned unwrapped.
type eachError struct{ err error }

func (e *eachError) Error() string { return e.err.Error() }
func (e *eachError) Unwrap() error { return e.err }

type listReader struct {
	win   window
	p     parser
	each  func(*Object) error
	items int
	meta  metav1.ListMeta
}

func (l *listReader) read() error {
	if err := l.win.fill(); err != nil {
		return unexpected(err)
	}
	format, err := sniff(l.win.data(), func(c byte) bool { return c == protoPrefix[0] })
	switch {
	case err != nil:
		return err
	case format == encodingProtobuf:
		err = l.readProto()
	default:
		err = l.readJSON()
	}
	if err != nil {
		return err
	}
	if c, err := l.win.peekByte(); err == nil {
		return fmt.Errorf("%q follows the list", c)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (l *listReader) item() error {
	l.items++
	if err := l.each(&l.p.obj); err != nil {
		return &eachError{err}
	}
	return nil
}

// varint reads a varint from the stream.
func (l *listReader) varint() (uint64, error) {
	for n := 1; n <= binary.MaxVarintLen64; n++ {
		if err := l.win.need(n); err != nil {
			return 0, err
		}
		if v, size := readVarint(l.win.data()[:n], 0); size > 0 {
			l.win.consume(size)
			return v, nil
		}
	}
	return 0, errors.New("a varint of more than 64 bits")
}

// bytes reads a field's content, which is valid until the next read.
func (l *listReader) bytes(what string) ([]byte, error) {
	size, err := l.varint()
	if err != nil {
		return nil, fmt.Errorf("the length of %s: %w", what, err)
	}
	if size > MaxObjectBytes {
		return nil, fmt.Errorf("%s of %d bytes is larger than the limit of %d", what, size, MaxObjectBytes)
	}
	if err := l.win.need(int(size)); err != nil {
		return nil, fmt.Errorf("%s of %d bytes, of which %d have arrived: %w", what, size, len(l.win.data()), err)
	}
	content := l.win.data()[:size]
	l.win.consume(int(size))
	return content, nil
}

// message reads a field's content and decodes it.
func (l *listReader) message(what string, into interface{ Unmarshal([]byte) error }) error {
	content, err := l.bytes(what)
	if err != nil {
		return err
	}
	if err := into.Unmarshal(content); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}

// readProto reads an envelope from the stream.
func (l *listReader) readProto() error {
	if err := l.p.cut.checkProto(); err != nil {
		return err
	}
	if err := l.win.need(len(protoPrefix)); err != nil {
		return err
	}
	if got := l.win.data()[:len(protoPrefix)]; string(got) != protoPrefix {
		return fmt.Errorf("want a list that starts with %q, got %s", protoPrefix, excerpt(l.win.data()))
	}
	l.win.consume(len(protoPrefix))
	var kind runtime.TypeMeta
	for lists := 0; ; {
		switch err := l.win.wait(); {
		case errors.Is(err, io.EOF) && lists == 0: // even an empty list has metadata
			return fmt.Errorf("the list in the envelope: %w", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return wantList(kind.Kind)
		case err != nil:
			return err
		}
		if err := l.envelopeField(&kind, &lists); err != nil {
			return err
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
func (l *listReader) envelopeField(kind *runtime.TypeMeta, lists *int) error {
	tag, err := l.varint()
	if err != nil {
		return err
	}
	switch tag {
	case 1<<3 | wireBytes:
		return l.message("the kind", kind)
	case 2<<3 | wireBytes:
		if kind.Kind == statusKind {
			status := &metav1.Status{}
			if err := l.message("the status", status); err != nil {
				return err
			}
			return statusError(status)
		}
		if *lists++; *lists > 1 {
			return errors.New("two lists in one envelope")
		}
		if err := wantList(kind.Kind); err != nil {
			return err
		}
		return l.readProtoList()
	case 3<<3 | wireBytes, 4<<3 | wireBytes:
		_, err := l.bytes("the envelope's content type")
		return err
	default:
		return fmt.Errorf("an unknown field of the envelope, with the tag %d", tag)
	}
}

// readProtoList reads the list's message.
func (l *listReader) readProtoList() error {
	size, err := l.varint()
	if err != nil {
		return fmt.Errorf("the length of the list: %w", err)
	}
	begin := l.win.passed
	end := begin + int64(min(size, 1<<62))
	for l.win.passed < end {
		tag, err := l.varint()
		if err != nil {
			return fmt.Errorf("a list of %d bytes, of which %d have arrived: %w", size, l.win.passed-begin, err)
		}
		switch tag {
		case 1<<3 | wireBytes:
			err = l.message("the list's metadata", &l.meta)
		case 2<<3 | wireBytes:
			err = l.protoItem(end)
		default:
			err = l.skipField(tag)
		}
		if err != nil {
			return err
		}
	}
	if l.win.passed != end {
		return errors.New("a field is longer than the list")
	}
	return nil
}

func (l *listReader) protoItem(end int64) error {
	content, err := l.bytes("an item")
	if err != nil {
		return err
	}
	if l.win.passed > end {
		return errors.New("an item is longer than the list")
	}
	if err := l.p.parseProto(content); err != nil {
		return fmt.Errorf("an item: %w", err)
	}
	return l.item()
}

// skipField skips a field of the list that is not needed.
func (l *listReader) skipField(tag uint64) error {
	var size uint64
	var err error
	switch tag & 7 {
	case wireVarint:
		_, err = l.varint()
	case wireBytes:
		size, err = l.varint()
	case wireFixed64:
		size = 8
	case wireFixed32:
		size = 4
	default:
		err = fmt.Errorf("a field of the list with the tag %d, which cannot be skipped", tag)
	}
	switch {
	case err != nil:
		return err
	case tag>>3 <= 2:
		return fmt.Errorf("a field of the list with the tag %d", tag)
	case size > MaxObjectBytes:
		return fmt.Errorf("a field of %d bytes is larger than the limit of %d", size, MaxObjectBytes)
	}
	if err := l.win.need(int(size)); err != nil {
		return err
	}
	l.win.consume(int(size))
	return nil
}

package wire

import (
	"errors"
	"fmt"
	"io"
)

// MaxObjectBytes is the maximum size of an object or a watch event on the wire: 16 MiB, the limit of client-go's
// streaming decoder. (etcd's limit is 1.5 MiB.)
const MaxObjectBytes = 16 << 20

const (
	startWindow = 32 << 10
	// keepWindow is the maximum size of a window that is kept for the next object.
	keepWindow = 1 << 20
)

// window is the part of a stream that is in memory. It doubles only if it is full of data that has arrived.
type window struct {
	src  io.Reader
	buf  []byte
	r, w int
	// passed is the number of consumed bytes, for errors.
	passed int64
	// err was returned together with the last data.
	err error
}

// data returns the data that has arrived and was not consumed. It is valid until the next fill.
func (b *window) data() []byte { return b.buf[b.r:b.w] }

func (b *window) consume(n int) {
	b.r += n
	b.passed += int64(n)
}

// fill reads at least one more byte.
func (b *window) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.w == len(b.buf) || b.r == b.w {
		b.makeRoom()
	}
	for range 100 {
		n, err := b.src.Read(b.buf[b.w:])
		b.w += n
		b.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

func (b *window) makeRoom() {
	held := b.w - b.r
	switch {
	case b.buf == nil:
		b.buf = make([]byte, startWindow)
	case len(b.buf) > keepWindow && held < startWindow/2:
		small := make([]byte, startWindow)
		copy(small, b.data())
		b.buf = small
	case held > len(b.buf)/2:
		large := make([]byte, 2*len(b.buf))
		copy(large, b.data())
		b.buf = large
	default:
		copy(b.buf, b.data())
	}
	b.r, b.w = 0, held
}

// wait waits for a byte.
func (b *window) wait() error {
	if b.r < b.w {
		return nil
	}
	return b.fill()
}

// need waits until n bytes have arrived. If the stream ends before, it returns io.ErrUnexpectedEOF.
func (b *window) need(n int) error {
	for b.w-b.r < n {
		if err := b.fill(); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// peekByte returns the next byte that is not space, without consuming it.
func (b *window) peekByte() (byte, error) {
	for {
		data := b.data()
		n := skipSpace(data, 0)
		b.consume(n)
		if n < len(data) {
			return data[n], nil
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// encoding is the encoding of a response.
type encoding int

const (
	encodingJSON encoding = iota + 1
	encodingProtobuf
)

// cborFirst is the first byte of the tag that starts self-described CBOR (RFC 8949, 3.4.6).
const cborFirst = 0xd9

// sniff detects the encoding from the first byte. proto reports whether protobuf may start with a byte here.
func sniff(data []byte, proto func(byte) bool) (encoding, error) {
	switch c := data[0]; {
	case c == '{' || skipSpace(data, 0) > 0:
		return encodingJSON, nil
	case proto(c):
		return encodingProtobuf, nil
	case c == cborFirst || c >= 0xa0 && c <= 0xbf:
		return 0, fmt.Errorf("CBOR is not supported: set AcceptContentTypes of the rest config to %q, or "+
			"leave it empty", "application/vnd.kubernetes.protobuf,application/json")
	default:
		return 0, fmt.Errorf("neither JSON nor protobuf, possibly the response of a proxy; it begins with %s",
			excerpt(data))
	}
}

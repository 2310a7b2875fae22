package apitest

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener whose connections are in memory, so that its server and their clients run in a bubble of
// testing/synctest. Create it with NewListener.
type Listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewListener returns a Listener that is open.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial returns a new connection when the server has accepted it. It is for the field Dial of a rest.Config: any address
// is that of the listener.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Deliver makes Accept return conn, and waits until it has.
func (l *Listener) Deliver(conn net.Conn) { l.conns <- conn }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

package leadership

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// leasedTransport sends the writes of one Term. It has its own connections, so that they can be closed when the
// leadership ends.
type leasedTransport struct {
	*http.Transport
	leadership *Term
}

// Transport sends the writes of terms of leadership for one client.
type Transport struct {
	// Immutable.
	// client-go's transport, which a reload of root certificates replaces
	Base func() http.RoundTripper
	Wrap func(rt http.RoundTripper) http.RoundTripper // the wrappers of the user's config
	Next http.RoundTripper                            // Base with these wrappers

	mu     sync.Mutex
	leased map[*leasedTransport]http.RoundTripper // with these wrappers; guarded by mu
}

// leasedFor returns the transport for writes with the leadership l that corresponds to t, or an error if the leadership
// has ended. It returns nil if t's connections cannot be controlled, because client-go was given a custom transport.
func (t *Transport) leasedFor(l *Term) (http.RoundTripper, error) {
	current := t.Base()
	if _, leased := current.(*leasedTransport); leased {
		return t.Next, nil // checked by the transport that calls this one
	}
	base := ClientGoTransport(current)
	if base == nil {
		return nil, nil //nolint:nilnil // see above
	}
	leased, err := l.leasedTransport(base)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	wrapped := t.leased[leased]
	t.mu.Unlock()
	if wrapped != nil {
		return wrapped, nil
	}
	// This is the first write of t in this term, or client-go has reloaded a CA and created a new base.
	wrapped = t.Wrap(leased)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leased == nil {
		t.leased = map[*leasedTransport]http.RoundTripper{}
	}
	if first := t.leased[leased]; first != nil {
		return first, nil
	}
	maps.DeleteFunc(t.leased, func(other *leasedTransport, _ http.RoundTripper) bool {
		return other.leadership.until.Load() == int64(ended)
	})
	t.leased[leased] = wrapped
	return wrapped, nil
}

// leasedTransport returns the transport for writes that corresponds to base, or an error if the leadership has ended.
func (l *Term) leasedTransport(base *http.Transport) (*leasedTransport, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	leased := l.bases[base]
	if leased == nil {
		leased = l.newTransport(base)
		l.bases[base] = leased
	}
	return leased, nil
}

// newTransport returns a copy of base with its own connections.
func (l *Term) newTransport(base *http.Transport) *leasedTransport {
	transport := base.Clone()
	_, http2 := base.TLSNextProto["h2"] // set by Clone if net/http configures HTTP/2
	transport.TLSNextProto = nil        // otherwise base's HTTP/2 connections would be used
	if !http2 {
		// HTTP/2 is disabled, as in base
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	dial := transport.DialContext
	if dial == nil && transport.Dial != nil { //nolint:staticcheck // deprecated, but used
		//nolint:staticcheck // see above
		dial = func(_ context.Context, network, address string) (net.Conn, error) { return base.Dial(network, address) }
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := l.Err(); err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return l.guarded(conn)
	}
	if http2 {
		proxy := transport.Proxy
		transport = utilnet.SetTransportDefaults(transport)
		transport.Proxy = proxy // nil if base has none
	}
	return &leasedTransport{transport, l}
}

// ClientGoTransport returns the transport that client-go has created, or the *http.Transport that it was given, or nil.
// client-go wraps it in types that close it and that reload a CA.
func ClientGoTransport(rt http.RoundTripper) *http.Transport {
	for {
		switch t := rt.(type) {
		case *http.Transport:
			if t.DialTLSContext != nil || t.DialTLS != nil { //nolint:staticcheck // deprecated, but used
				return nil // net/http must get these connections unwrapped
			}
			return t
		case utilnet.RoundTripperWrapper:
			typ := reflect.TypeOf(t)
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			if !strings.HasSuffix(typ.PkgPath(), "k8s.io/client-go/transport") {
				return nil // its behavior would be lost
			}
			rt = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}

// guarded returns a connection that writes only until the leadership ends.
func (l *Term) guarded(conn net.Conn) (net.Conn, error) {
	c := &leasedConn{Conn: conn, leadership: l}
	l.mu.Lock()
	err := l.err
	if err == nil {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// leasedConn is a connection for the writes of a Term.
type leasedConn struct {
	net.Conn
	leadership *Term
}

// Write implements net.Conn. It repeats the check of the request, because time may have passed since then in net/http's
// goroutines.
func (c *leasedConn) Write(p []byte) (int, error) {
	l := c.leadership
	l.writing.RLock()
	defer l.writing.RUnlock()
	if err := l.Err(); err != nil {
		_ = c.Conn.Close()
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *leasedConn) Close() error {
	l := c.leadership
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	return c.Conn.Close()
}

// Send sends a write of a term. The request fails when the term ends: before it is sent, while its bytes are passed to
// the operating system, and while its response is read. connects reports whether a response with a status is a
// connection instead of an object: its body may go on after the end of the term until the connection is closed.
func (t *Transport) Send(req *http.Request, l *Term, connects func(status int) bool) (*http.Response, error) {
	if err := l.Err(); err != nil {
		return nil, NotSent(req, err)
	}
	transport, err := t.leasedFor(l)
	if err != nil {
		return nil, NotSent(req, err)
	}
	var resp *http.Response
	if transport != nil {
		resp, err = transport.RoundTrip(req)
	} else {
		resp, err = t.sendCancelled(req, l)
	}
	explain := func(err error) error {
		if lost := l.Err(); lost != nil { // the write was in flight
			//nolint:errorlint // not %w: the error of a connection would be retried
			err = fmt.Errorf("%s %s: abandoned: %w: %v", req.Method, req.URL.Path, lost, err)
		}
		return err
	}
	if err != nil {
		return nil, explain(err)
	}
	if !connects(resp.StatusCode) {
		resp.Body = Body{resp.Body, explain} // the end of the leadership closes the connection
	}
	return resp, nil
}

// Body is a response body with other read errors.
type Body struct {
	io.ReadCloser
	Explain func(err error) error
}

// Read implements io.Reader.
func (b Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.Explain(err)
	}
	return n, err
}

// NotSent returns the error of a request that is not sent.
func NotSent(req *http.Request, why error) error {
	if req.Body != nil {
		_ = req.Body.Close() // required for a RoundTripper; nothing was read
	}
	return fmt.Errorf("%s %s: not sent: %w", req.Method, req.URL.Path, why)
}

// sendCancelled sends a request through a transport that cannot be copied. The end of the leadership cancels it.
func (t *Transport) sendCancelled(req *http.Request, l *Term) (resp *http.Response, err error) {
	ctx, cancel := l.context(req.Context())
	defer func() {
		if resp == nil { // also after a panic
			cancel()
		}
	}()
	resp, err = t.Next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		conn := resp.Body // net/http does not close it when ctx ends
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	resp.Body = CancelOnClose(resp.Body, cancel)
	return resp, nil
}

// CancelOnClose returns a response body that cancels its request when it is closed. It is a connection if body is one.
func CancelOnClose(body io.ReadCloser, cancel func()) io.ReadCloser {
	cancelling := cancellingBody{body, cancel}
	if conn, ok := body.(io.Writer); ok {
		return upgradedBody{cancelling, conn}
	}
	return cancelling
}

// cancellingBody is a response body that cancels its request when it is closed.
type cancellingBody struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer.
func (b cancellingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// upgradedBody is the body of a response that is a connection.
type upgradedBody struct {
	cancellingBody
	io.Writer
}

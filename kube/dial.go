package kube

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// readBuffer is the size of a connection's read buffer. net/http reads 4 KB at a time, less than most Pods need, so
// each event would cost two system calls. A larger buffer reads several events of a burst in one.
const readBuffer = 32 << 10

// withBufferedDial returns a config that dials with dialBuffered, unless config has its own Dial or Transport.
func withBufferedDial(config *rest.Config) *rest.Config {
	if config.Dial != nil || config.Transport != nil {
		return config
	}
	config = rest.CopyConfig(config)
	config.Dial = dialBuffered
	return config
}

// dialFunc is the type of rest.Config.Dial.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// guardedDial returns dial, which may be nil, behind a guard: net/http calls it on a goroutine of its own.
func guardedDial(dial dialFunc, guard *usercode.Guard) dialFunc {
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = guard.Try("the Dial of a rest.Config", func() (err error) {
			conn, err = dial(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// dialBuffered dials as client-go does by default, and buffers reads.
func dialBuffered(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &bufferedConn{Conn: conn, reader: bufio.NewReaderSize(conn, readBuffer)}, nil
}

type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn. net/http reads a connection in one goroutine at a time.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// closableTransport makes http.Client.CloseIdleConnections effective. client-go's wrappers, for example for tokens,
// have WrappedRoundTripper in place of CloseIdleConnections.
type closableTransport struct {
	http.RoundTripper
	claims    *apiobject.Claims
	observers *apiobject.Observers
}

// Claims returns the claims of the Cluster, for apiobject.ClaimsOf.
func (t closableTransport) Claims() *apiobject.Claims { return t.claims }

// Observers returns what observes the Cluster, for apiobject.ObserversOf.
func (t closableTransport) Observers() *apiobject.Observers { return t.observers }

// WrappedRoundTripper implements client-go's RoundTripperWrapper.
func (t closableTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t closableTransport) CloseIdleConnections() { closeIdleConnections(t.RoundTripper) }

// closeIdleConnections closes the idle connections of the first transport below rt that has some. client-go's
// CloseIdleConnectionsFor also logs a warning when there is none.
func closeIdleConnections(rt http.RoundTripper) {
	for {
		switch t := rt.(type) {
		case interface{ CloseIdleConnections() }:
			t.CloseIdleConnections()
			return
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return
		}
	}
}

package kube_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A config may have a *http.Transport of its own. Writes under a leadership are dialled as it says and speak
// the protocol that it allows.
func TestContract06_WritesThroughOwnHTTPTransports(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set func(transport *http.Transport, count func())
		// protocol is the major version of HTTP.
		protocol int64
		// atSend is whether bytes are checked when they leave.
		atSend bool
	}{
		"plain": {set: func(transport *http.Transport, count func()) {
			transport.ForceAttemptHTTP2 = true
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				count()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		}, protocol: 2, atSend: true},
		"without a dial function": {set: func(transport *http.Transport, _ func()) {
			transport.ForceAttemptHTTP2 = true
		}, protocol: 2, atSend: true},
		"HTTP/2 not attempted": {set: func(transport *http.Transport, count func()) {
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				count()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		}, protocol: 1, atSend: true},
		"HTTP/2 switched off": {set: func(transport *http.Transport, count func()) {
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				count()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		}, protocol: 1, atSend: true},
		"Dial": {set: func(transport *http.Transport, count func()) {
			transport.Dial = func(network, address string) (net.Conn, error) { //nolint:staticcheck // deprecated, and in use
				count()
				return net.Dial(network, address)
			}
		}, protocol: 1, atSend: true},
		"DialTLSContext": {set: func(transport *http.Transport, count func()) {
			config := transport.TLSClientConfig
			transport.TLSClientConfig = nil
			transport.DialTLSContext = func(_ context.Context, network, address string) (net.Conn, error) {
				count()
				return tls.Dial(network, address, config)
			}
		}, protocol: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newBodies(t, true)
			close(server.response)
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			var dialled atomic.Int64
			own := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}}
			tt.set(own, func() { dialled.Add(1) })
			t.Cleanup(own.CloseIdleConnections)
			cluster := clusterOf(t, &rest.Config{Host: server.URL, Transport: own})
			if _, err := send(cluster.HTTPClient(), server.request(t.Context(), t, http.MethodGet, "", nil)); err != nil {
				t.Fatal(err)
			}
			if got := server.protocol.Load(); got != tt.protocol {
				t.Fatalf("a read was sent by HTTP/%d, want %d", got, tt.protocol)
			}
			dialled.Store(0)
			own.CloseIdleConnections()

			var now atomic.Int64
			held := leadership.New(func() time.Duration { return time.Duration(now.Load()) }, time.Hour)
			leading, cancel := leadership.With(t.Context(), held)
			defer cancel()
			ctx := context.WithoutCancel(leading)
			if _, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodPost, "", strings.NewReader("in time"))); err != nil {
				t.Fatal(err)
			}
			if got := server.protocol.Load(); got != tt.protocol || dialled.Load() != 1 && name != "without a dial function" {
				t.Errorf("a write was sent by HTTP/%d on %d connections of the transport's function, want HTTP/%d and one", got, dialled.Load(), tt.protocol)
			}
			if tt.atSend {
				body := strings.NewReader("late")
				_, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodPost, "", readerFunc(func(p []byte) (int, error) {
					now.Store(int64(time.Hour))
					return body.Read(p)
				})))
				if !errors.Is(err, kube.ErrLeadershipLost) {
					t.Errorf("a request of which part had left: %v, want ErrLeadershipLost", err)
				}
			}
			now.Store(int64(time.Hour))
			if _, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodPost, "", strings.NewReader("late"))); !errors.Is(err, kube.ErrLeadershipLost) {
				t.Errorf("a late write: %v, want ErrLeadershipLost", err)
			}
			if got := server.received(); len(got) != 2 {
				t.Errorf("the server has received %q, want the read and the write in time", got)
			}
		})
	}
}

// A config may have a RoundTripper of its own, whose connections cannot be known. A write is checked when it is
// made, and it is sent with a context that ends with the leadership.
func TestContract06_WritesThroughOwnRoundTrippersAreChecked(t *testing.T) {
	t.Parallel()
	var now, sent atomic.Int64
	cluster := clusterOf(t, &rest.Config{Host: "http://server", Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		sent.Add(1)
		if req.Body != nil {
			_, _ = io.Copy(io.Discard, req.Body)
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
	})})
	held := leadership.New(func() time.Duration { return time.Duration(now.Load()) }, time.Hour)
	leading, cancel := leadership.With(t.Context(), held)
	defer cancel()
	write := func() error {
		req, err := http.NewRequestWithContext(context.WithoutCancel(leading), http.MethodPost, "http://server/api/v1/namespaces/ns/configmaps", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = send(cluster.HTTPClient(), req)
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	now.Store(int64(time.Hour)) // no timer has fired
	if err := write(); !errors.Is(err, kube.ErrLeadershipLost) || sent.Load() != 1 {
		t.Errorf("a write after the deadline: %v, and %d were sent, want ErrLeadershipLost and 1", err, sent.Load())
	}
}

// net/http must get TLS connections as a transport's own function has made them. Writes on them are cancelled.
func TestContract06_WritesOnOwnTLSConnectionsAreCancelled(t *testing.T) {
	t.Parallel()
	server := newBodies(t, true)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	own := &http.Transport{DialTLSContext: func(_ context.Context, network, address string) (net.Conn, error) {
		return tls.Dial(network, address, &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12})
	}}
	t.Cleanup(own.CloseIdleConnections)
	cluster := clusterOf(t, &rest.Config{Host: server.URL, Transport: own})
	held, leading := lead(t)
	result := make(chan error)
	go func() { // waited for below
		_, err := send(cluster.HTTPClient(), server.request(context.WithoutCancel(leading), t, http.MethodPut, "", strings.NewReader("in flight")))
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("the write has ended: %v", err)
	case <-server.arrived:
	}
	held.Lose(errTaken)
	if err := <-result; !errors.Is(err, kube.ErrLeadershipLost) { // the server does not respond
		t.Errorf("the write in flight: %v, want ErrLeadershipLost", err)
	}
}

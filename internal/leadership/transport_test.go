package leadership

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestTransportsOfEndedTermsAreRemoved(t *testing.T) {
	t.Parallel()
	base := &http.Transport{}
	transport := &Transport{
		Base: func() http.RoundTripper { return base },
		Wrap: func(rt http.RoundTripper) http.RoundTripper { return rt },
		Next: base,
	}
	for range 10 {
		term := New(nil, time.Hour)
		first, err := transport.leasedFor(term)
		if err != nil || first == nil {
			t.Fatalf("leasedFor returned %v, %v", first, err)
		}
		if second, err := transport.leasedFor(term); err != nil || second != first {
			t.Errorf("the second write of a term has another transport, %v", err)
		}
		term.Release()
		if after, err := transport.leasedFor(term); !errors.Is(err, ErrLost) || after != nil {
			t.Errorf("after the end of the term: %v, %v", after, err)
		}
	}
	if n := len(transport.leased); n > 1 {
		t.Errorf("%d transports are kept after 10 terms", n)
	}
}

func TestClosedConnectionsAreRemoved(t *testing.T) {
	t.Parallel()
	term := New(nil, time.Hour)
	defer term.Release()
	for range 10 {
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		conn, err := term.guarded(near)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	term.mu.Lock()
	defer term.mu.Unlock()
	if n := len(term.conns); n > 0 {
		t.Errorf("%d closed connections are kept", n)
	}
}

// TestConnectionDialedAfterTermIsClosed checks that a connection is closed whose dial ends after the term.
func TestConnectionDialedAfterTermIsClosed(t *testing.T) {
	t.Parallel()
	term := New(nil, time.Hour)
	term.Release()
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	if conn, err := term.guarded(near); !errors.Is(err, ErrLost) || conn != nil {
		t.Errorf("guarded returned %v, %v", conn, err)
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is not closed: %v", err)
	}
}

// TestTransportOfWritesUsesNoOtherProxy checks that the writes of a term take the same route as other requests: only
// through a proxy that the client has.
func TestTransportOfWritesUsesNoOtherProxy(t *testing.T) {
	t.Parallel()
	term := New(nil, time.Hour)
	defer term.Release()
	leased := term.newTransport(&http.Transport{ForceAttemptHTTP2: true})
	if leased.TLSNextProto["h2"] == nil {
		t.Error("HTTP/2 is not enabled")
	}
	if leased.Proxy != nil {
		t.Error("the transport has a proxy, the one for other requests has none")
	}
}

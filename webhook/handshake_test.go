package webhook

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowListener delivers no connections while held is locked.
type slowListener struct {
	net.Listener
	held sync.Mutex
}

func (l *slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.held.Lock()
	defer l.held.Unlock()
	return conn, err
}

// The server is not ready while it accepts no connections, and while it has a certificate that is not valid.
func TestReadyPerformsHandshakes(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &slowListener{Listener: inner}
	authority, folder := newAuthority(t, 10*time.Hour), t.TempDir()
	renew := func(now time.Time) (certFile, keyFile string) {
		t.Helper()
		pair, err := authority.NewServer([]string{"example.com"}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return writePair(t, folder, pair)
	}
	certFile, keyFile := renew(time.Now().Add(3 * time.Hour)) // not valid before two hours from now
	metrics := &recorded{}
	s, err := New(Config{
		Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), allowMaps)}, Listener: listener, CertFile: certFile, KeyFile: keyFile,
		Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	limit := func(timeout time.Duration) {
		s.handshake.mu.Lock()
		defer s.handshake.mu.Unlock()
		s.handshake.timeout, s.handshake.interval = timeout, 10*time.Millisecond
	}
	limit(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	await := func(want string) {
		t.Helper()
		// Without a limit: otherwise the test ends with the time of go test.
		for {
			got := ""
			if err := s.Ready(); err != nil {
				got = err.Error()
			}
			if got == want || want != "" && strings.Contains(got, want) {
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	await("the certificate is valid from ")
	renew(time.Now())
	await("")
	if end := metrics.certificate(); time.Until(end) < 50*time.Minute || time.Until(end) > time.Hour {
		t.Errorf("the certificate expires at %s", end)
	}
	listener.held.Lock()
	limit(300 * time.Millisecond) // it is always reached
	await("TLS handshake with 127.0.0.1:")
	limit(time.Hour)
	listener.held.Unlock()
	await("")
}

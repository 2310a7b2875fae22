package httpserver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a net.Listener in memory, for synctest bubbles.
type pipes struct{ *apitest.Listener }

func newPipes() *pipes { return &pipes{apitest.NewListener()} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.Deliver(server)
	return client
}

// launched is a server that runs.
type launched struct {
	*Server
	logs   *testlog.Buffer
	cancel context.CancelFunc
	result chan error
}

// launch starts a server that ends with the test.
func launch(t *testing.T, config Config) *launched {
	t.Helper()
	l := &launched{logs: &testlog.Buffer{}, result: make(chan error, 1)}
	config.Logger = slog.New(slog.NewTextHandler(l.logs, nil))
	if config.Handler == nil {
		config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	}
	if config.ShutdownTimeout == 0 {
		config.ShutdownTimeout = time.Second
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	l.Server = server
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	go func() { l.result <- server.Run(ctx) }() // waited for below
	t.Cleanup(func() {
		cancel()
		if err := <-l.result; err != nil {
			t.Errorf("Run failed: %v", err)
		}
	})
	return l
}

// get sends a request over a connection and returns the status and the body of the response.
func get(conn net.Conn) (int, string, error) {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
		return 0, "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// expectHello fails the test unless a new client gets its response at once.
func expectHello(t *testing.T, conn net.Conn) {
	t.Helper()
	defer func() { _ = conn.Close() }()
	begun := time.Now()
	if status, body, err := get(conn); err != nil || status != http.StatusOK || body != "hello" {
		t.Errorf("got status %d, body %q, error %v", status, body, err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("the response took %s", took)
	}
}

func TestSlowClientsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		begin, rest string        // what a slow client sends: begin at once, and a byte of rest each second
		closed      time.Duration // when the server must have closed the connection
	}{
		"silent":          {"", "", readHeaderTimeout},
		"slow headers":    {"GET / HTTP/1.1\r\nHost: ", strings.Repeat("a", 1000), readHeaderTimeout},
		"slow body":       {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", strings.Repeat("a", 1000), readTimeout},
		"unread response": {"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "", writeTimeout},
	}
	for name, kind := range kinds {
		for _, limit := range []int{4, 100} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					listener := newPipes()
					launch(t, Config{Listener: listener, MaxConnections: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
						if _, err := io.Copy(io.Discard, req.Body); err != nil {
							return
						}
						if req.URL.Path == "/large" {
							_, _ = w.Write(make([]byte, 1<<20))
							return
						}
						_, _ = io.WriteString(w, "hello")
					})})
					var clients sync.WaitGroup
					const slow = 20
					begun := time.Now()
					for range slow {
						clients.Go(func() { // waited for below
							conn := listener.dial()
							defer func() { _ = conn.Close() }()
							if kind.rest != "" {
								clients.Go(func() { _, _ = io.Copy(io.Discard, conn) })
							}
							_, err := io.WriteString(conn, kind.begin)
							for i := 0; err == nil && i < len(kind.rest); i++ {
								time.Sleep(time.Second)
								_, err = io.WriteString(conn, kind.rest[i:i+1])
							}
							if kind.rest != "" {
								return
							}
							if kind.begin != "" {
								time.Sleep(kind.closed + time.Second)
							}
							_, _ = io.Copy(io.Discard, conn)
						})
					}
					synctest.Wait()
					for range 10 {
						expectHello(t, listener.dial())
					}
					clients.Wait()
					if took := time.Since(begun); took > kind.closed+2*time.Second {
						t.Errorf("the last slow connection was closed after %s, want at most %s", took, kind.closed)
					}
				})
			})
		}
	}
}

func TestIdleConnectionsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	for _, withTLS := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			listener := newPipes()
			config := Config{Listener: listener, MaxConnections: 200}
			dial := func() net.Conn {
				if withTLS {
					return tls.Client(listener.dial(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
				}
				return listener.dial()
			}
			if withTLS {
				config.CertFile, config.KeyFile = writeCertificate(t, t.TempDir(), 1, time.Hour)
			}
			server := launch(t, config)
			var idle []net.Conn
			for i := range 1000 {
				conn := dial()
				idle = append(idle, conn)
				if i%2 == 0 { // half of them have sent a request
					if _, _, err := get(conn); err != nil {
						t.Fatal(err)
					}
				}
				if i%100 == 0 {
					expectHello(t, dial())
				}
			}
			for range 50 {
				expectHello(t, dial())
			}
			server.connections.mu.Lock()
			if n := len(server.connections.all); n > 200 {
				t.Errorf("the server has %d connections, want at most 200", n)
			}
			server.connections.mu.Unlock()
			for _, conn := range idle {
				_ = closeNow(conn)
			}
		})
	}
}

// Idle connections are closed before those with a request in progress. When all have one, that of the oldest request is
// closed, so that no client can keep others out.
func TestConnectionLimitSparesRequestsInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		proceed := make(chan struct{})
		launch(t, Config{Listener: listener, MaxConnections: 3, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPost {
				<-proceed
			}
			_, _ = io.WriteString(w, "hello")
		})})
		var clients sync.WaitGroup
		var cut atomic.Int32
		post := func() {
			conn := listener.dial()
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			if text, _ := bufio.NewReader(conn).ReadString('\n'); text == "" {
				cut.Add(1)
			}
		}
		for range 2 {
			clients.Go(post)
		}
		synctest.Wait()
		for range 100 {
			defer func(conn net.Conn) { _ = conn.Close() }(listener.dial())
			expectHello(t, listener.dial())
		}
		if n := cut.Load(); n != 0 {
			t.Errorf("%d requests in progress were cut for idle connections", n)
		}
		for range 10 { // more requests than connections
			clients.Go(post)
			synctest.Wait()
		}
		expectHello(t, listener.dial())
		close(proceed)
		clients.Wait()
		if n := cut.Load(); n != 10 {
			t.Errorf("%d requests were cut, want the 10 oldest of 12", n)
		}
	})
}

// Among idle connections, the one that had a request before all others is closed.
func TestConnectionLimitSparesRecentlyUsedConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		server := launch(t, Config{Listener: listener, MaxConnections: 2})
		first, second := listener.dial(), listener.dial()
		use := func(conn net.Conn) error {
			_, _, err := get(conn)
			synctest.Wait()
			return err
		}
		for _, conn := range []net.Conn{first, second, first} {
			if err := use(conn); err != nil {
				t.Fatal(err)
			}
		}
		third := listener.dial()
		if err := errors.Join(use(third), use(first)); err != nil {
			t.Errorf("the connection that was used last was closed: %v", err)
		}
		if use(second) == nil {
			t.Error("there are more connections than the limit")
		}
		_, _, _ = first.Close(), second.Close(), third.Close()
		synctest.Wait()
		server.connections.mu.Lock()
		defer server.connections.mu.Unlock()
		if n := len(server.connections.all); n != 0 {
			t.Errorf("%d connections after all were closed", n)
		}
	})
}

func TestHugeRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		launch(t, Config{Listener: listener, MaxBodyBytes: 1000, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if _, err := io.ReadAll(req.Body); err != nil {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			_, _ = io.WriteString(w, "hello")
		})})
		for text, want := range map[string]int{
			"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n":                             http.StatusRequestHeaderFieldsTooLarge,
			"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: a\r\n", 20_000) + "\r\n":                              http.StatusRequestHeaderFieldsTooLarge,
			"GET /" + strings.Repeat("a", 10<<20) + " HTTP/1.1\r\nHost: a\r\n\r\n":                                     http.StatusRequestHeaderFieldsTooLarge,
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("a", 1001):                   http.StatusRequestEntityTooLarge,
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat("a", 1001):      http.StatusRequestEntityTooLarge,
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("a", 1000):                   http.StatusOK,
			"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                                             http.StatusBadRequest,
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\naa": http.StatusBadRequest,
		} {
			conn := listener.dial()
			go func() { _, _ = io.WriteString(conn, text) }() // ends with the connection
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != want {
				t.Errorf("%.60q...: status %d, want %d", text, response.StatusCode, want)
			}
			_ = response.Body.Close()
			_ = conn.Close()
			expectHello(t, listener.dial())
		}
	})
}

func TestPanickingHandler(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"broken", error(nil), http.ErrAbortHandler, errors.New("broken")} {
		synctest.Test(t, func(t *testing.T) {
			listener := newPipes()
			fail := true
			server := launch(t, Config{Listener: listener, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if fail {
					panic(value)
				}
				_, _ = io.WriteString(w, "hello")
			})})
			for range 10 {
				conn := listener.dial()
				if status, _, err := get(conn); err == nil {
					t.Errorf("got status %d after a panic", status)
				}
				_ = conn.Close()
			}
			fail = false
			expectHello(t, listener.dial())
			want := 1
			if value == http.ErrAbortHandler { //nolint:errorlint // the value of a panic
				want = 0
			}
			if n := server.logs.Count("server_test.go"); n != want {
				t.Errorf("%d stacks in the log, want %d", n, want)
			}
		})
	}
}

func TestGracefulEnd(t *testing.T) {
	t.Parallel()
	for _, inTime := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			listener := newPipes()
			cancelled := make(chan struct{})
			server := launch(t, Config{
				Listener: listener, ShutdownTimeout: 10 * time.Second,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if inTime {
						time.Sleep(9 * time.Second)
						if req.Context().Err() != nil {
							t.Error("the context of a request in progress ended with the begin of the shutdown")
						}
						_, _ = io.WriteString(w, "hello")
					} else {
						<-req.Context().Done()
						close(cancelled)
					}
				}),
			})
			synctest.Wait()
			if err := server.Ready(); err != nil {
				t.Errorf("not ready: %v", err)
			}
			response := make(chan error, 1)
			conn, idle := listener.dial(), listener.dial()
			go func() { // waited for below
				_, _, err := get(conn)
				response <- err
			}()
			synctest.Wait()
			begun := time.Now()
			server.cancel()
			err := <-server.result
			server.result <- nil // for the cleanup
			if err != nil {
				t.Errorf("Run failed: %v", err)
			}
			if took := time.Since(begun); took > 10*time.Second || took < 8*time.Second {
				t.Errorf("the shutdown took %s", took)
			}
			if err := <-response; (err == nil) != inTime {
				t.Errorf("response in time: %t, error %v", inTime, err)
			}
			if !inTime {
				<-cancelled
			}
			if server.Ready() == nil {
				t.Error("ready after the end")
			}
			_, _ = conn.Close(), idle.Close()
		})
	}
}

func TestCertificateReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		listener := newPipes()
		certFile, keyFile := writeCertificate(t, dir, 1, time.Hour)
		server := launch(t, Config{Listener: listener, CertFile: certFile, KeyFile: keyFile})
		expect := func(serial int64, ready string) {
			t.Helper()
			time.Sleep(reloadInterval)
			for range 3 {
				conn := tls.Client(listener.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}) //nolint:gosec // a test
				if err := conn.HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				state := conn.ConnectionState()
				if got := state.PeerCertificates[0].SerialNumber.Int64(); got != serial || state.NegotiatedProtocol != "http/1.1" {
					t.Errorf("certificate %d and protocol %q, want %d and http/1.1", got, state.NegotiatedProtocol, serial)
				}
				_ = closeNow(conn)
				synctest.Wait()
			}
			if err := server.Ready(); ready == "" && err != nil || ready != "" && (err == nil || !strings.Contains(err.Error(), ready)) {
				t.Errorf("ready: %v, want %q", err, ready)
			}
		}
		expect(1, "")
		writeCertificate(t, dir, 2, time.Hour)
		expect(2, "")
		write(t, certFile, "broken")
		expect(2, "failed to find any PEM data")
		expect(2, "failed to find any PEM data")
		if n := server.logs.Count("reload failed"); n != 1 {
			t.Errorf("%d records of a broken file, want 1", n)
		}
		writeCertificate(t, dir, 4, time.Hour)
		expect(4, "")
		if err := os.Rename(keyFile, keyFile+".old"); err != nil {
			t.Fatal(err)
		}
		expect(4, "no such file")
		if err := os.Rename(keyFile+".old", keyFile); err != nil {
			t.Fatal(err)
		}
		expect(4, "")
		key, err := os.ReadFile(keyFile)
		if err != nil {
			t.Fatal(err)
		}
		writeCertificate(t, dir, 5, time.Hour)
		write(t, keyFile, string(key))
		expect(4, "private key does not match")
		writeCertificate(t, dir, 6, 10*time.Minute)
		expect(6, "")
		time.Sleep(11 * time.Minute)
		expect(6, "has expired at ")
		if reads, failures := server.CertificateReads(); reads != 11 || failures != 4 {
			t.Errorf("%d reads with %d failures, want 11 with 4", reads, failures)
		}
		if n := server.logs.Count("certificate reloaded"); n != 4 {
			t.Errorf("%d records of a new certificate, want 4", n)
		}
		old := tls.Client(listener.dial(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) //nolint:gosec // a test
		if err := old.HandshakeContext(t.Context()); err == nil {
			t.Error("a client with TLS 1.2 was accepted")
		}
		_ = closeNow(old)
	})
}

// Each handshake succeeds while the files change. A user writes them one after the other, so handshakes also meet a new
// certificate with the old key.
func TestCertificatesSwappedDuringHandshakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		listener := newPipes()
		certFile, keyFile := writeCertificate(t, dir, 1, 24*time.Hour)
		server := launch(t, Config{Listener: listener, CertFile: certFile, KeyFile: keyFile})
		var clients sync.WaitGroup
		serials := map[int64]bool{}
		var mu sync.Mutex
		for client := range 8 {
			clients.Go(func() {
				for range 40 {
					time.Sleep(time.Duration(100+client) * time.Millisecond)
					conn := tls.Client(listener.dial(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
					if err := conn.HandshakeContext(t.Context()); err != nil {
						t.Errorf("handshake failed: %v", err)
						return
					}
					mu.Lock()
					serials[conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()] = true
					mu.Unlock()
					expectHello(t, conn)
				}
			})
		}
		clients.Go(func() {
			// Handshakes begin at whole milliseconds, so no file is read while it is written.
			time.Sleep(time.Millisecond / 2)
			for serial := range int64(20) {
				cert, key := newCertificatePair(t, serial+2, 24*time.Hour)
				write(t, certFile, cert)
				time.Sleep(70 * time.Millisecond)
				write(t, keyFile, key)
				time.Sleep(160 * time.Millisecond)
			}
		})
		clients.Wait()
		if len(serials) < 3 {
			t.Errorf("clients saw %d certificates, want at least 3", len(serials))
		}
		if server.logs.Count("reload failed") == 0 {
			t.Error("no handshake met a new certificate with the old key")
		}
	})
}

func TestNewRejectsCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, _ := writeCertificate(t, dir, 1, time.Hour)
	for _, files := range [][2]string{{certFile, certFile}, {certFile, filepath.Join(dir, "none")}, {"", certFile}} {
		if _, err := New(Config{Listen: ":0", CertFile: files[0], KeyFile: files[1], Logger: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%q was accepted", files)
		}
	}
}

func TestNewRejectsEmptyAddress(t *testing.T) {
	t.Parallel()
	for listen, isValid := range map[string]bool{"": false, ",": false, " , ": false, ":0": true, ",:0": true} {
		if _, err := New(Config{Listen: listen, Logger: slog.New(slog.DiscardHandler)}); (err == nil) != isValid {
			t.Errorf("%q: %v", listen, err)
		}
	}
}

// writeCertificate writes a certificate and its key, and returns their files.
func writeCertificate(t *testing.T, dir string, serial int64, lifetime time.Duration) (certFile, keyFile string) {
	t.Helper()
	cert, key := newCertificatePair(t, serial, lifetime)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, certFile, cert)
	write(t, keyFile, key)
	return certFile, keyFile
}

// newCertificatePair returns a certificate and its key as the content of files.
func newCertificatePair(t *testing.T, serial int64, lifetime time.Duration) (cert, key string) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime)}
	encodedCert, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encodedCert})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey}))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

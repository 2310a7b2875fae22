package kube_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
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

	"k8s.io/client-go/rest"
)

// authority is a certificate authority with a certificate for the server "api".
type authority struct {
	pem  []byte
	leaf tls.Certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	now := time.Now()
	create := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = key
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), now.Add(-time.Hour), now.Add(1000*time.Hour)
		template.Subject = pkix.Name{CommonName: name}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	ca := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, caKey := create(ca, ca, nil)
	leaf, key := create(&x509.Certificate{DNSNames: []string{"api"}}, ca, caKey)
	return &authority{
		pem:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		leaf: tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key},
	}
}

// pipes is a listener whose connections are in memory, so that it runs in a bubble.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}

	mu     sync.Mutex
	opened []net.Conn // guarded by mu; since the last cut
	dialed int        // guarded by mu
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accept:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.mu.Lock()
	p.opened, p.dialed = append(p.opened, server), p.dialed+1
	p.mu.Unlock()
	p.accept <- server
	return client, nil
}

// cut closes all connections.
func (p *pipes) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.opened {
		_ = conn.Close()
	}
	p.opened = nil
}

// secured is an API server with TLS in a bubble.
type secured struct {
	*pipes

	t         *testing.T
	authority atomic.Pointer[authority]
	caFile    string
}

// serveSecured starts a server.
func serveSecured(t *testing.T, handler http.Handler) *secured {
	t.Helper()
	s := &secured{
		pipes: &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}, t: t, caFile: filepath.Join(t.TempDir(), "ca.crt"),
	}
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.authority.Load().leaf, nil },
	}}
	go func() { _ = server.ServeTLS(s, "", "") }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// echo responds with the method, the protocol and the body of a request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the response shows it
	fmt.Fprintf(w, "%s %s %s", r.Method, r.Proto, body)
}

// write replaces the file with the root certificates.
func (s *secured) write(text []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.caFile, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// replace gives the server a certificate of another authority, and closes all connections.
func (s *secured) replace(a *authority) {
	s.authority.Store(a)
	s.cut()
	synctest.Wait()
}

func (s *secured) config() *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1", Dial: s.dial, // no proxy of the machine serves a loopback address
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.caFile, ServerName: "api"},
	}
}

func (s *secured) request(ctx context.Context, method, body string) *http.Request {
	s.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1/api/v1/namespaces/a/configmaps", reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return req
}

// TestNewCertificateAuthority replaces the authority of a server without a time in which both are valid. The first request
// after that must succeed, with each kind of client.
func TestNewCertificateAuthority(t *testing.T) {
	t.Parallel()
	for name, clientOf := range map[string]func(t *testing.T, config *rest.Config) *http.Client{
		"client of the Cluster": func(t *testing.T, config *rest.Config) *http.Client {
			t.Helper()
			return clusterOf(t, config).HTTPClient()
		},
		"client of the RESTConfig": func(t *testing.T, config *rest.Config) *http.Client {
			t.Helper()
			client, err := rest.HTTPClientFor(clusterOf(t, config).RESTConfig())
			if err != nil {
				t.Fatal(err)
			}
			return client
		},
		"Cluster of the RESTConfig": func(t *testing.T, config *rest.Config) *http.Client {
			t.Helper()
			return clusterOf(t, clusterOf(t, config).RESTConfig()).HTTPClient()
		},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, leading := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, leading %t", name, method, leading), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						one, two, three := newAuthority(t, "one"), newAuthority(t, "two"), newAuthority(t, "three")
						s := serveSecured(t, http.HandlerFunc(echo))
						s.write(one.pem)
						s.replace(one)
						client := clientOf(t, s.config())
						ctx := t.Context()
						if leading {
							_, ctx = lead(t)
						}
						expect := func(when string) {
							t.Helper()
							got, err := send(client, s.request(ctx, method, "hello"))
							if want := method + " HTTP/2.0 hello"; err != nil || got != want {
								t.Errorf("%s: got %q, %v; want %q", when, got, err, want)
							}
						}
						refuse := func(when string) {
							t.Helper()
							if got, err := send(client, s.request(ctx, method, "hello")); err == nil || !strings.Contains(err.Error(), "x509") {
								t.Errorf("%s: got %q, %v; want an error of x509", when, got, err)
							}
						}
						expect("at first")
						s.replace(two)
						refuse("the file has the old authority")
						s.write([]byte("no certificate"))
						refuse("the file is damaged")
						s.write(two.pem)
						expect("the file has the new authority")
						s.write(three.pem)
						s.replace(three)
						expect("the file has the third authority")
						s.write(one.pem)
						time.Sleep(clientGoInterval) // idle connections are closed
						refuse("the authority was removed from the file")
					})
				})
			}
		}
	}
}

// clientGoInterval is the interval in which client-go reads the file.
const clientGoInterval = 5 * time.Minute

// A certificate that is removed from the file must not be accepted forever, also if the file was read at an error before.
func TestRemovedCertificateAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two, three := newAuthority(t, "one"), newAuthority(t, "two"), newAuthority(t, "three")
		s := serveSecured(t, http.HandlerFunc(echo))
		s.write(one.pem)
		s.replace(one)
		client := clusterOf(t, s.config()).HTTPClient()
		get := func() error { _, err := send(client, s.request(t.Context(), http.MethodGet, "")); return err }
		if err := get(); err != nil {
			t.Fatal(err)
		}
		s.write(append(two.pem, three.pem...))
		s.replace(two)
		if err := get(); err != nil {
			t.Fatal(err)
		}
		s.write(three.pem)
		time.Sleep(clientGoInterval)
		s.cut()
		synctest.Wait()
		if err := get(); err == nil {
			t.Error("the server's certificate was accepted after the removal of its authority from the file")
		}
	})
}

// Watches that are open must not end when the root certificates are read again.
func TestNewCertificateAuthorityKeepsWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newAuthority(t, "one"), newAuthority(t, "two")
		lines := make(chan string)
		s := serveSecured(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("watch") {
				echo(w, r)
				return
			}
			for line := range lines {
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			}
		}))
		s.write(one.pem)
		s.replace(one)
		cluster := clusterOf(t, s.config())
		watch := s.request(t.Context(), http.MethodGet, "")
		watch.URL.RawQuery = "watch=true"
		go func() { lines <- "first" }()
		resp, err := cluster.HTTPClient().Do(watch)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		events := bufio.NewScanner(resp.Body)
		expect := func(want string) {
			t.Helper()
			if !events.Scan() || events.Text() != want {
				t.Errorf("the watch has %q, %v; want %q", events.Text(), events.Err(), want)
			}
		}
		expect("first")
		s.authority.Store(two)
		s.write(two.pem)
		// A request with a connection of its own reads the file: a write of a leader.
		_, leading := lead(t)
		if _, err := send(cluster.HTTPClient(), s.request(leading, http.MethodPost, "x")); err != nil {
			t.Error(err)
		}
		go func() { lines <- "second" }()
		expect("second")
		// All later requests have connections that were verified with the new certificates.
		if _, err := send(cluster.HTTPClient(), s.request(t.Context(), http.MethodGet, "")); err != nil {
			t.Error(err)
		}
		go func() { lines <- "third"; close(lines) }()
		expect("third")
	})
}

// A certificate for another name is not a reason to send the request again.
func TestUnverifiedCertificateWithCurrentFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newAuthority(t, "one")
		s := serveSecured(t, http.HandlerFunc(echo))
		s.write(one.pem)
		s.replace(one)
		config := s.config()
		config.ServerName = "another"
		if got, err := send(clusterOf(t, config).HTTPClient(), s.request(t.Context(), http.MethodGet, "")); err == nil {
			t.Errorf("got %q, want an error", got)
		}
		if s.dialed != 1 {
			t.Errorf("%d connections were opened, want 1", s.dialed)
		}
	})
}

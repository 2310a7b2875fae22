package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// maxStreams is kube-apiserver's default limit of concurrent requests on one HTTP/2 connection.
const maxStreams = 100

// proxy stands between an operator and the API server and counts what passes. It counts requests on the wire, so
// retries inside of a client's transport count too, and it counts in the same way for every program. It speaks TLS and
// HTTP/2, as the API server does, and forwards with the administrator's credentials.
type proxy struct {
	address     string // fixed by the first open
	certificate tls.Certificate
	authority   []byte // PEM
	forward     *httputil.ReverseProxy
	closeIdle   func()

	sent, received atomic.Int64 // bytes of bodies, as transferred

	mu       sync.Mutex
	server   *http.Server   // guarded by mu; nil while closed
	served   chan struct{}  // guarded by mu; closed when server has ended
	requests map[string]int // guarded by mu; by "verb resource"
	failures map[string]int // guarded by mu; responses of 400 and above by "code verb resource"
	pending  int            // guarded by mu; requests in progress, without watches
	last     time.Time      // guarded by mu; when a request, watches excluded, began or ended
}

// newProxy returns a closed proxy in front of the API server of config.
func newProxy(config *rest.Config) (*proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's address: %w", err)
	}
	config = rest.CopyConfig(config)
	config.DisableCompression = true // bodies pass as they are: the operator's own Accept-Encoding decides
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the transport to the API server: %w", err)
	}
	certificate, authority, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	p := &proxy{
		address: "127.0.0.1:0", certificate: certificate, authority: authority,
		requests: make(map[string]int), failures: make(map[string]int),
	}
	p.closeIdle = func() {
		(&http.Client{Transport: transport}).CloseIdleConnections()
	}
	p.forward = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		// The operator sees a broken stream, as when the API server itself breaks it.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return p, nil
}

// open begins to serve, at the same address each time.
func (p *proxy) open(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("open the counting proxy: %w", err)
	}
	server := &http.Server{
		Handler: p, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	served := make(chan struct{})
	p.mu.Lock()
	p.address, p.server, p.served = listener.Addr().String(), server, served
	p.mu.Unlock()
	go func() { // close waits for it, through served
		defer close(served)
		_ = server.ServeTLS(listener, "", "") // ends with close
	}()
	return nil
}

// close cuts all connections. Until the next open, connections are refused, as those to a killed API server are.
func (p *proxy) close() error {
	p.mu.Lock()
	server, served := p.server, p.served
	p.server = nil
	p.mu.Unlock()
	if server == nil {
		return nil
	}
	err := server.Close()
	<-served
	p.closeIdle()
	return err
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, watch := requestName(r)
	p.mu.Lock()
	p.requests[name]++
	if !watch {
		p.pending++
		p.last = time.Now()
	}
	p.mu.Unlock()
	counted := &countedResponse{ResponseWriter: w, bytes: &p.received, code: http.StatusOK}
	defer func() { // also when the forwarding aborts by a panic
		p.mu.Lock()
		if counted.code >= http.StatusBadRequest {
			p.failures[fmt.Sprint(counted.code, " ", name)]++
		}
		if !watch {
			p.pending--
			p.last = time.Now()
		}
		p.mu.Unlock()
	}()
	if r.Body != nil {
		r.Body = &countedBody{ReadCloser: r.Body, bytes: &p.sent}
	}
	p.forward.ServeHTTP(counted, r)
}

// quietFor returns for how long no request began, ended or was in progress; watches don't count.
func (p *proxy) quietFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending > 0 {
		return 0
	}
	return time.Since(p.last)
}

// requestName returns "verb resource", with the verbs of RBAC and "apply" for a server-side apply.
func requestName(r *http.Request) (name string, watch bool) {
	resource, named := resourceOf(r.URL.Path)
	query := r.URL.Query()
	verb := strings.ToLower(r.Method)
	switch r.Method {
	case http.MethodGet:
		verb = "list"
		if named {
			verb = "get"
		}
		if value := query.Get("watch"); value == "true" || value == "1" {
			verb, watch = "watch", true
		}
	case http.MethodPost:
		verb = "create"
	case http.MethodPut:
		verb = "update"
	case http.MethodPatch:
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch+") {
			verb = "apply"
		}
	case http.MethodDelete:
		if !named {
			verb = "deletecollection"
		}
	}
	return verb + " " + resource, watch
}

// resourceOf returns the resource of an API path, with its subresource, and whether the path names one object.
func resourceOf(path string) (resource string, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "discovery", true
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2], true
	}
	return parts[0], len(parts) == 2
}

// countedResponse counts the bytes of a response's body.
type countedResponse struct {
	http.ResponseWriter
	bytes *atomic.Int64
	code  int
}

// WriteHeader implements http.ResponseWriter.
func (c *countedResponse) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (c *countedResponse) Write(b []byte) (int, error) {
	c.bytes.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (c *countedResponse) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// countedBody counts the bytes of a request's body.
type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

// Read implements io.Reader.
func (c *countedBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// selfSigned returns a certificate for 127.0.0.1 and its own authority as PEM.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(7 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	encodedKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certificate, err := tls.X509KeyPair(authority,
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encodedKey}))
	return certificate, authority, err
}

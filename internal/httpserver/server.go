// Package httpserver is an HTTP server with limits for each resource that a client can use: headers, bodies, times and
// connections. It reloads its certificate, and ends gracefully. The manager uses it.
package httpserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// Limits of each server.
const (
	readHeaderTimeout = 5 * time.Second // also of a TLS handshake
	readTimeout       = 30 * time.Second
	writeTimeout      = 2 * time.Minute // longer than the usual CPU profile
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Config configures a Server.
type Config struct {
	// Listen is a TCP address to listen on, or several with commas. Listener is used in addition; Run closes it.
	Listen   string
	Listener net.Listener
	Handler  http.Handler
	// CertFile and KeyFile are PEM files of the certificate and its key. They are read again when they change.
	CertFile, KeyFile string
	// TLS are the settings of connections, with a certificate if there are no files. Default: TLS 1.3 with files,
	// otherwise no TLS.
	TLS *tls.Config
	// ClientCAFile is a PEM file of the authorities of client certificates, for TLS. It is read again when it changes.
	// Clients need no certificate for a connection; CheckClient checks it for a request. Default: no client
	// certificates.
	ClientCAFile string
	// MaxConnections is the number of connections at the same time. One more closes the connection that has been
	// without a request in progress for the longest time, or if all have one, the connection whose request began first.
	// Default: 256.
	MaxConnections int
	// MaxBodyBytes limits the body of each request. Default: 1 MiB.
	MaxBodyBytes int64
	// ShutdownTimeout is the time for requests in progress at the end. It must be positive.
	ShutdownTimeout time.Duration
	Logger          *slog.Logger
}

// Settings returns the settings of connections with TLS that change, which may be nil, has changed, and the mistakes in
// them. The default is TLS 1.3.
func Settings(change func(*tls.Config)) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS13}
	if change != nil {
		change(settings)
	}
	var mistakes usercode.Mistakes
	mistakes.AddIf(settings.MaxVersion != 0 && settings.MaxVersion < max(settings.MinVersion, tls.VersionTLS12),
		"TLS sets MaxVersion to less than MinVersion, or than TLS 1.2")
	mistakes.AddIf(len(settings.CipherSuites) > 0 && settings.MinVersion >= tls.VersionTLS13, "TLS sets CipherSuites, "+
		"which TLS 1.3 does not use: set MinVersion to tls.VersionTLS12 too")
	mistakes.AddIf(slices.Contains(settings.NextProtos, "h2"), "TLS sets HTTP/2 in NextProtos: the server has "+
		"HTTP/1.1 only")
	return settings, mistakes.Err()
}

// Server is an HTTP server. New creates one.
type Server struct {
	config      Config
	guard       *usercode.Guard
	tls         *tls.Config                  // nil without TLS
	certificate *fileValue[*tls.Certificate] // nil without files
	clientCA    *fileValue[*clientCA]        // nil without ClientCAFile
	connections connections
	address     atomic.Pointer[net.Addr] // of the first listener, while Run serves
}

// New returns a Server. It reads the files, and does not listen.
func New(config Config) (*Server, error) {
	config.MaxConnections = cmp.Or(config.MaxConnections, 256)
	config.MaxBodyBytes = cmp.Or(config.MaxBodyBytes, 1<<20)
	s := &Server{
		config: config, guard: usercode.NewGuard(config.Logger), tls: config.TLS.Clone(),
		connections: connections{limit: config.MaxConnections, all: map[net.Conn]*connection{}},
	}
	var errs []error
	if config.Listener == nil && len(Addresses(config.Listen)) == 0 {
		errs = append(errs, fmt.Errorf("%q has no address: use one such as \":8080\"", config.Listen))
	}
	if config.CertFile != "" || config.KeyFile != "" {
		s.certificate = newCertificate(config.CertFile, config.KeyFile, config.Logger)
		errs = append(errs, s.certificate.load())
		if s.tls == nil {
			s.tls = &tls.Config{MinVersion: tls.VersionTLS13}
		}
		s.tls.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate.current(), nil
		}
	}
	if config.ClientCAFile != "" {
		s.clientCA = newClientCA(config.ClientCAFile, config.Logger)
		errs = append(errs, s.clientCA.load())
		s.tls.GetConfigForClient = s.clientConfig(s.tls.Clone())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Listening returns an error until the server listens.
func (s *Server) Listening() error {
	if s.address.Load() == nil {
		return errors.New("not listening yet")
	}
	return nil
}

// Ready returns an error until the server listens, and while its certificate or the client CA is not valid or cannot be
// read.
func (s *Server) Ready() error {
	if err := s.Listening(); err != nil {
		return err
	}
	return errors.Join(s.certificate.ready(), s.clientCA.ready())
}

// CheckClient returns an error unless the client of a request has a certificate that is valid now and signed by an
// authority that is in ClientCAFile now. Without ClientCAFile it returns nil.
func (s *Server) CheckClient(req *http.Request) error {
	if s.clientCA == nil {
		return nil
	}
	return s.clientCA.current().check(req.TLS, time.Now())
}

// Handshake connects to the server, and returns an error unless a TLS handshake succeeds with a certificate that is
// valid now. It does not check by whom the certificate is signed.
func (s *Server) Handshake(ctx context.Context) error {
	address := s.address.Load()
	if address == nil {
		return errors.New("not listening yet")
	}
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // it is this server
		VerifyConnection: func(state tls.ConnectionState) error {
			cert := state.PeerCertificates[0]
			if now := time.Now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
				return fmt.Errorf("the certificate is valid from %s to %s", cert.NotBefore.UTC().Format(time.RFC3339),
					cert.NotAfter.UTC().Format(time.RFC3339))
			}
			return nil
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", (*address).String()) // an unspecified IP address means this host
	if err != nil {
		return fmt.Errorf("TLS handshake with %s: %w", *address, err)
	}
	_ = conn.Close()
	return nil
}

// CertificateReads returns how often the files of the certificate were read, and how often they had no valid one.
func (s *Server) CertificateReads() (reads, failures uint64) { return s.certificate.counts() }

// Expiry returns the end of the certificate in the files, or the zero time without files.
func (s *Server) Expiry() time.Time {
	if s.certificate == nil {
		return time.Time{}
	}
	return s.certificate.current().Leaf.NotAfter
}

// Run serves until ctx ends. Then it accepts no further connection, waits for requests in progress at most for
// ShutdownTimeout, and closes all connections. It may be called again.
func (s *Server) Run(ctx context.Context) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	base, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := s.server(base)
	served := make(chan error, len(listeners))
	for _, listener := range listeners {
		s.config.Logger.InfoContext(ctx, "HTTP server started", "address", listener.Addr().String(), "tls",
			s.tls != nil)
		go func() { served <- s.serve(server, listener) }() // waited for below
	}
	s.address.Store(new(listeners[0].Addr()))
	defer s.address.Store(nil)
	left := len(listeners)
	select {
	case err = <-served:
		left--
		err = errors.Join(err, server.Close())
	case <-ctx.Done():
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ShutdownTimeout)
		defer cancel()
		if server.Shutdown(ending) != nil {
			err = server.Close() // of requests that did not end in time
		}
	}
	for range left {
		if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
	}
	return err
}

// Addresses returns the addresses in a list with commas.
func Addresses(list string) []string {
	var addresses []string
	for address := range strings.SplitSeq(list, ",") {
		if address = strings.TrimSpace(address); address != "" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// listen returns the listeners of the config. After an error none of them is open.
func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	var listeners []net.Listener
	if s.config.Listener != nil {
		listeners = append(listeners, s.config.Listener)
	}
	for _, address := range Addresses(s.config.Listen) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("listen on %s: %w: choose another address", address, err)
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

func (s *Server) serve(server *http.Server, listener net.Listener) error {
	var err error
	if s.tls != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
}

// server returns the server of one Run. base is the parent of the contexts of its requests, so it must not end at the
// begin of the shutdown.
func (s *Server) server(base context.Context) *http.Server {
	server := &http.Server{
		Handler: s.handler(), TLSConfig: s.tls,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		BaseContext:    func(net.Listener) context.Context { return base },
		ConnContext:    s.connections.context,
		ConnState:      s.connections.stateChanged,
		// Clients cause these records, so they must not fill the log.
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	// One HTTP/2 connection could begin and reset any number of requests (CVE-2023-44487); no client of these servers
	// needs it.
	server.Protocols = &http.Protocols{}
	server.Protocols.SetHTTP1(true)
	return server
}

// clientConfig returns a function that returns config with the current authorities of client certificates. Sessions are
// not resumed: a resumed one has the chains of an earlier connection.
func (s *Server) clientConfig(config *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	config.ClientAuth, config.SessionTicketsDisabled = tls.VerifyClientCertIfGiven, true
	config.NextProtos = []string{"http/1.1"} // as net/http sets it
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := config.Clone()
		current.ClientCAs = s.clientCA.current().pool
		return current, nil
	}
}

// handler returns the handler of the config with the limit of bodies. A panic ends the connection, as in net/http, but
// its stack is logged only once.
func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		end := s.connections.begin(req.Context())
		defer end()
		req.Body = http.MaxBytesReader(w, req.Body, s.config.MaxBodyBytes)
		aborted := false
		panicked := s.guard.Call("HTTP handler", func() {
			defer func() {
				// ErrAbortHandler is the documented way to abort a response, so it is not logged.
				if value := recover(); value == http.ErrAbortHandler { //nolint:errorlint // as in net/http
					aborted = true
				} else if value != nil {
					panic(value)
				}
			}()
			s.config.Handler.ServeHTTP(w, req)
		}, func() []any { return []any{"method", req.Method, "path", req.URL.Path} })
		if aborted || panicked != nil {
			panic(http.ErrAbortHandler)
		}
	})
}

// Handle registers handlers by their patterns, each after wrap. The error lists all mistakes: ServeMux reports invalid
// patterns and conflicts only by a panic.
func Handle(
	mux *http.ServeMux, handlers map[string]http.Handler, wrap func(http.Handler) http.Handler,
) error {
	var errs []error
	register := func(pattern string) (err error) {
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("%v", value)
			}
		}()
		if usercode.IsNil(handlers[pattern]) {
			return errors.New("the handler is nil")
		}
		mux.Handle(pattern, wrap(handlers[pattern]))
		return nil
	}
	for _, pattern := range slices.Sorted(maps.Keys(handlers)) {
		if err := register(pattern); err != nil {
			//nolint:staticcheck // the name of a field
			errs = append(errs, fmt.Errorf("Handlers[%q]: %w", pattern, err))
		}
	}
	return errors.Join(errs...)
}

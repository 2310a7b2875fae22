package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/httpserver"
)

// newServer returns the HTTP server, or nil without an address.
func (s *Server) newServer(config Config) (*httpserver.Server, error) {
	if config.Listen == "" && config.Listener == nil {
		if config.CertFile != "" || config.KeyFile != "" || config.ClientCAFile != "" || config.Certificates != nil ||
			config.TLS != nil {
			return nil, errors.New("CertFile, KeyFile, TLS, ClientCAFile or Certificates is set without Listen: set " +
				"Listen, for example to \":9443\"")
		}
		return nil, nil
	}
	settings, errs := config.tlsSettings()
	errs.addIf(config.Listen != "" && config.Listener != nil, "Listen and Listener are both set: use one")
	if config.Certificates != nil {
		var err error
		s.keeper, err = newKeeper(*config.Certificates, s)
		errs.addIf(err != nil, "Certificates: %w", err)
	}
	errs.addIf(config.ClientCAFile != "" && len(s.hooks) > 0 && len(s.conversions()) == len(s.hooks),
		"ClientCAFile is set, and all hooks are conversions: the API server has no client certificate for them")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if s.keeper != nil {
		settings.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.keeper.certificate() }
	}
	return httpserver.New(httpserver.Config{
		Listen: config.Listen, Listener: config.Listener, Handler: s, CertFile: config.CertFile,
		KeyFile: config.KeyFile, TLS: settings, ClientCAFile: config.ClientCAFile,
		MaxBodyBytes:    maxConversionBytes, // readBody has the limit of the hook
		ShutdownTimeout: shutdownTimeout, Logger: s.logger,
	})
}

// tlsSettings returns the settings of TLS, and the mistakes in them and in the certificates.
func (c Config) tlsSettings() (*tls.Config, mistakes) {
	settings, err := httpserver.Settings(c.TLS)
	var errs mistakes
	errs.addIf(err != nil, "%w", err)
	hasFiles, hasBoth := c.CertFile != "" || c.KeyFile != "", c.CertFile != "" && c.KeyFile != ""
	hasOwn := settings.GetCertificate != nil || len(settings.Certificates) > 0
	errs.addIf(c.Certificates != nil && hasFiles, "Certificates and CertFile or KeyFile are set: use one")
	errs.addIf(hasOwn && (c.Certificates != nil || hasFiles), "TLS sets a certificate, and Certificates, CertFile or "+
		"KeyFile is set: use one")
	errs.addIf(c.Certificates == nil && !hasBoth && !hasOwn, "CertFile and KeyFile, or Certificates, are required "+
		"with Listen: the API server calls webhooks with TLS only")
	errs.addIf(settings.ClientAuth != tls.NoClientCert || settings.ClientCAs != nil ||
		settings.GetConfigForClient != nil, "TLS sets ClientAuth, ClientCAs or GetConfigForClient: use ClientCAFile, "+
		"because the API server has no certificate for conversions")
	return settings, errs
}

// handshakes remembers the last TLS handshake of a server with itself.
type handshakes struct {
	timeout  time.Duration
	interval time.Duration // for which a result is used again

	mu  sync.Mutex
	at  time.Time // guarded by mu
	err error     // guarded by mu
}

// check performs a handshake, unless the last one was just before.
func (h *handshakes) check(server *httpserver.Server) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) < h.interval {
		return h.err
	}
	//nolint:forbidigo // Ready has no context, and the time-out bounds it
	ctx, cancel := context.WithTimeout(context.Background(), h.timeout)
	defer cancel()
	h.err = server.Handshake(ctx)
	h.at = time.Now()
	return h.err
}

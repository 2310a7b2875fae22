package httpserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// reloadInterval is the minimum time between two reads of the files, so that clients cannot cause many.
const reloadInterval = time.Second

// fileValue is a value that is parsed from files. They are read when the value is needed, so it needs no goroutine.
type fileValue[T comparable] struct {
	name    string // for errors and log records
	files   []string
	parse   func(contents [][]byte) (T, error)
	expires func(T) time.Time
	logger  *slog.Logger

	mu       sync.Mutex
	loaded   T         // guarded by mu; the last valid one
	err      error     // guarded by mu; of the last read
	read     time.Time // guarded by mu; the last read
	contents [][]byte  // guarded by mu; of the last read
	reported string    // guarded by mu; the error that was logged
	reads    uint64    // guarded by mu
	failures uint64    // guarded by mu; reads without a valid value
}

// load reads the files for the first time.
func (v *fileValue[T]) load() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.readLocked()
	return v.err
}

// current returns the last valid value of the files. A client that connects more than reloadInterval after a change
// gets the new one.
func (v *fileValue[T]) current() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refreshLocked()
	return v.loaded
}

// ready returns an error if the files have no valid value, or if it has expired. v may be nil.
func (v *fileValue[T]) ready() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refreshLocked()
	if end := v.expires(v.loaded); time.Now().After(end) {
		return errors.Join(fmt.Errorf("the %s in %s has expired at %s", v.name, v.files[0],
			end.UTC().Format(time.RFC3339)), v.err)
	}
	return v.err
}

// refreshLocked reads the files if that is due, and logs each new value and each new error once. mu must be held.
func (v *fileValue[T]) refreshLocked() {
	if time.Since(v.read) < reloadInterval {
		return
	}
	before := v.loaded
	v.readLocked()
	switch {
	case v.err == nil:
		v.reported = ""
		if v.loaded != before {
			v.logger.Info("certificate reloaded", "content", v.name, "file", v.files[0], "expires", v.expires(v.loaded))
		}
	case v.err.Error() != v.reported:
		v.reported = v.err.Error()
		v.logger.Error("certificate reload failed, the previous certificate stays in use", "content", v.name,
			"error", v.err)
	}
}

// counts returns the number of reads, and of those without a valid value. v may be nil.
func (v *fileValue[T]) counts() (reads, failures uint64) {
	if v == nil {
		return 0, 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reads, v.failures
}

// readLocked reads the files. mu must be held.
func (v *fileValue[T]) readLocked() {
	v.reads++
	if v.parseLocked(); v.err != nil {
		v.failures++
	}
}

// parseLocked sets what the files contain. mu must be held.
func (v *fileValue[T]) parseLocked() {
	v.read = time.Now()
	var contents [][]byte
	var errs []error
	for _, file := range v.files {
		content, err := os.ReadFile(file)
		contents, errs = append(contents, content), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		v.err = fmt.Errorf("read the %s: %w", v.name, err)
		v.contents = nil
		return
	}
	if slices.EqualFunc(contents, v.contents, bytes.Equal) {
		return
	}
	v.contents = contents
	value, err := v.parse(contents)
	if err != nil {
		v.err = err
		return
	}
	v.loaded, v.err = value, nil
}

// newCertificate returns the certificate in two files.
func newCertificate(certFile, keyFile string, logger *slog.Logger) *fileValue[*tls.Certificate] {
	return &fileValue[*tls.Certificate]{
		name: "certificate", files: []string{certFile, keyFile}, logger: logger,
		parse: func(contents [][]byte) (*tls.Certificate, error) {
			pair, err := tls.X509KeyPair(contents[0], contents[1])
			if err != nil {
				return nil, fmt.Errorf("read the certificate in %s and its key in %s: %w", certFile, keyFile, err)
			}
			return &pair, nil
		},
		expires: func(pair *tls.Certificate) time.Time { return pair.Leaf.NotAfter },
	}
}

// clientCA has the authorities of client certificates.
type clientCA struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// newClientCA returns the authorities in a file.
func newClientCA(file string, logger *slog.Logger) *fileValue[*clientCA] {
	return &fileValue[*clientCA]{
		name: "client CA", files: []string{file}, logger: logger,
		parse: func(contents [][]byte) (*clientCA, error) {
			ca, err := parseClientCA(contents[0])
			if err != nil {
				return nil, fmt.Errorf("read the client CA in %s: %w", file, err)
			}
			return ca, nil
		},
		expires: func(ca *clientCA) time.Time {
			return slices.MaxFunc(ca.certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).
				NotAfter
		},
	}
}

func parseClientCA(text []byte) (*clientCA, error) {
	ca := &clientCA{pool: x509.NewCertPool()}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a PEM block of type %q: want only CERTIFICATE", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		ca.certs = append(ca.certs, cert)
		ca.pool.AddCert(cert)
	}
	// Package pem skips blocks that are incomplete or not valid.
	blocks := 0
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("-----BEGIN")) {
			blocks++
		}
	}
	if skipped := blocks - len(ca.certs); skipped > 0 {
		return nil, fmt.Errorf("%d of its %d PEM blocks are incomplete or not valid", skipped, blocks)
	}
	if len(ca.certs) == 0 {
		return nil, errors.New("it has no PEM block of type CERTIFICATE")
	}
	return ca, nil
}

// check returns an error unless the client certificate of a connection is still valid: its authority may have been
// removed since the handshake, or a certificate may have expired.
func (ca *clientCA) check(connection *tls.ConnectionState, now time.Time) error {
	if connection == nil || len(connection.VerifiedChains) == 0 {
		return errors.New("a client certificate is required")
	}
	for _, chain := range connection.VerifiedChains {
		isTrusted := slices.ContainsFunc(ca.certs, chain[len(chain)-1].Equal)
		if isTrusted && !slices.ContainsFunc(chain, func(cert *x509.Certificate) bool {
			return now.After(cert.NotAfter)
		}) {
			return nil
		}
	}
	// The file may have another certificate of the authority, for example a renewed one with the same key.
	sent := connection.PeerCertificates
	options := x509.VerifyOptions{
		Roots: ca.pool, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range sent[1:] {
		options.Intermediates.AddCert(cert)
	}
	if _, err := sent[0].Verify(options); err != nil {
		return fmt.Errorf("the client certificate has expired, or its authority was removed: connect again with "+
			"another one: %w", err)
	}
	return nil
}

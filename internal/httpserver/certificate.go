package httpserver

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reloadInterval is the minimum time between two reads of the files, so that clients cannot cause many.
const reloadInterval = time.Second

// certificate is a certificate in files. It is read when it is needed, so it needs no goroutine.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu       sync.Mutex
	loaded   *tls.Certificate // guarded by mu; the last valid one
	err      error            // guarded by mu; of the last read
	read     time.Time        // guarded by mu; the last read
	cert     []byte           // guarded by mu; the content of the last read
	key      []byte           // guarded by mu; the content of the last read
	reported string           // guarded by mu; the error that was logged
}

// load reads the files for the first time.
func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLocked()
	return c.err
}

// current returns the last valid certificate of the files. A client that connects more than reloadInterval after a
// change gets the new one.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshLocked()
	return c.loaded
}

// ready returns an error if the files have no valid certificate, or if it has expired.
func (c *certificate) ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshLocked()
	if end := c.loaded.Leaf.NotAfter; time.Now().After(end) {
		return errors.Join(fmt.Errorf("the certificate in %s has expired at %s", c.certFile, end.UTC().Format(time.RFC3339)), c.err)
	}
	return c.err
}

// refreshLocked reads the files if that is due, and logs each new certificate and each new error once. mu must be held.
func (c *certificate) refreshLocked() {
	if time.Since(c.read) < reloadInterval {
		return
	}
	before := c.loaded
	c.readLocked()
	switch {
	case c.err == nil:
		c.reported = ""
		if c.loaded != before {
			c.logger.Info("certificate reloaded", "file", c.certFile, "expires", c.loaded.Leaf.NotAfter)
		}
	case c.err.Error() != c.reported:
		c.reported = c.err.Error()
		c.logger.Error("certificate reload failed, the previous certificate stays in use", "error", c.err)
	}
}

// readLocked reads the files. mu must be held.
func (c *certificate) readLocked() {
	c.read = time.Now()
	cert, certErr := os.ReadFile(c.certFile)
	key, keyErr := os.ReadFile(c.keyFile)
	if err := errors.Join(certErr, keyErr); err != nil {
		c.err = fmt.Errorf("read the certificate: %w", err)
		c.cert, c.key = nil, nil
		return
	}
	if c.cert != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return
	}
	c.cert, c.key = cert, key
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.err = fmt.Errorf("read the certificate in %s and its key in %s: %w", c.certFile, c.keyFile, err)
		return
	}
	c.loaded, c.err = &pair, nil
}

package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// rootsTransport is client-go's transport. When it cannot verify the certificate of the API server, because the cluster
// has a new certificate authority, it reads the file with the root certificates again.
type rootsTransport struct {
	// Immutable.
	file   string // "" if the root certificates are not in a file
	client http.RoundTripper

	mu         sync.Mutex
	reloaded   *http.Transport // guarded by mu; nil if client-go's transport is used
	reloadedAt time.Time       // guarded by mu
}

// clientGoInterval is the interval in which client-go reads the file, at least.
const clientGoInterval = 5 * time.Minute

// newRootsTransport returns a transport for config. base is client-go's transport, or the transport of another Cluster.
func newRootsTransport(config *rest.Config, base http.RoundTripper) *rootsTransport {
	if t, ok := base.(*rootsTransport); ok {
		return t // config is from the RESTConfig of a Cluster
	}
	t := &rootsTransport{client: base}
	if len(config.CAData) == 0 {
		t.file = config.CAFile
	}
	return t
}

// current returns client-go's transport, or a copy of it with the root certificates that were read last. The copy is
// used only until client-go reads the file with its next request. After that, certificates that were removed from the
// file are not accepted.
func (t *rootsTransport) current() http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reloaded != nil && time.Since(t.reloadedAt) < clientGoInterval {
		return t.reloaded
	}
	t.reloaded = nil
	return t.client
}

// RoundTrip implements http.RoundTripper.
func (t *rootsTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.current().RoundTrip(req)
}

// WrappedRoundTripper implements client-go's RoundTripperWrapper.
func (t *rootsTransport) WrappedRoundTripper() http.RoundTripper { return t.current() }

// CloseIdleConnections closes the idle connections of both transports.
func (t *rootsTransport) CloseIdleConnections() {
	closeIdleConnections(t.client)
	closeIdleConnections(t.current())
}

// reload reports whether the request that failed with err must be sent again, because the file has other root
// certificates than the transport that failed. Requests that are in progress, such as watches, keep their connections.
func (t *rootsTransport) reload(err error, failed http.RoundTripper) bool {
	unverified := (*tls.CertificateVerificationError)(nil)
	if t.file == "" || !errors.As(err, &unverified) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reloaded != nil && t.reloaded != failed {
		return true // another request was first
	}
	transport := leadership.ClientGoTransport(failed)
	text, readErr := os.ReadFile(t.file)
	roots := x509.NewCertPool()
	if transport == nil || readErr != nil || !roots.AppendCertsFromPEM(text) ||
		roots.Equal(transport.TLSClientConfig.RootCAs) {
		return false
	}
	t.reloaded, t.reloadedAt = transport.Clone(), time.Now()
	t.reloaded.TLSClientConfig.RootCAs = roots
	transport.CloseIdleConnections()
	return true
}

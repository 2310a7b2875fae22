package prometheus

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type (
	makeCounter   = func(name, help string, labels ...string) *prometheus.CounterVec
	makeHistogram = func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec
)

// compatibleRequests are the metrics of requests to the API server.
type compatibleRequests struct {
	total                             *prometheus.CounterVec
	duration, sent, received, resolve *prometheus.HistogramVec
}

func newCompatibleRequests(counter makeCounter, histogram makeHistogram) compatibleRequests {
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	return compatibleRequests{
		total: counter("rest_client_requests_total",
			"HTTP requests by status code, method and host.", "code", "method", "host"),
		duration: histogram("rest_client_request_duration_seconds",
			"Time between the request and the header of its response.", seconds, "verb", "host"),
		sent: histogram("rest_client_request_size_bytes",
			"Size of requests' bodies, if it is known before they are sent.", bytes, "verb", "host"),
		received: histogram("rest_client_response_size_bytes",
			"Size of responses' bodies without watches, as they were read.", bytes, "verb", "host"),
		resolve: histogram("rest_client_dns_resolution_duration_seconds",
			"Duration of name lookups for new connections.", seconds, "host"),
	}
}

// wrapTransport returns a transport that counts the requests of next in rest_client_*, or next itself unless
// Config.CompatibleNames is set.
func (r *Recorder) wrapTransport(next http.RoundTripper) http.RoundTripper {
	if r.compat == nil {
		return next
	}
	return &countingTransport{next: next, metrics: r.compat.requests}
}

type countingTransport struct {
	// Immutable.
	next    http.RoundTripper
	metrics compatibleRequests
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	method, host, began := req.Method, label(req.URL.Host), time.Now()
	if !slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions,
	}, method) {
		method = otherValue
	}
	resp, err := t.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), t.metrics.traceLookups())))
	code := "<error>" // client-go's value
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	t.metrics.total.WithLabelValues(code, method, host).Inc()
	t.metrics.duration.WithLabelValues(method, host).Observe(time.Since(began).Seconds())
	if req.ContentLength > 0 || req.ContentLength == 0 && (req.Body == nil || req.Body == http.NoBody) { // it is known
		t.metrics.sent.WithLabelValues(method, host).Observe(float64(req.ContentLength))
	}
	// A watch has no size, and a caller may write to the body of a switched protocol.
	if err == nil && resp.Body != nil && resp.StatusCode != http.StatusSwitchingProtocols &&
		!strings.Contains(req.URL.RawQuery, "watch=") {
		resp.Body = &countedBody{
			ReadCloser: resp.Body, isError: resp.StatusCode >= http.StatusBadRequest,
			sizes: t.metrics.received.WithLabelValues(method, host),
		}
	}
	return resp, err
}

// WrappedRoundTripper implements client-go's RoundTripperWrapper.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// traceLookups returns a trace of one request. A dial for it can continue while the request uses another connection.
func (m compatibleRequests) traceLookups() *httptrace.ClientTrace {
	var mu sync.Mutex
	var host string
	var began time.Time
	return &httptrace.ClientTrace{
		DNSStart: func(info httptrace.DNSStartInfo) {
			mu.Lock()
			defer mu.Unlock()
			host, began = info.Host, time.Now()
		},
		DNSDone: func(httptrace.DNSDoneInfo) {
			mu.Lock()
			defer mu.Unlock()
			m.resolve.WithLabelValues(label(host)).Observe(time.Since(began).Seconds())
		},
	}
}

// countedBody observes the size of a response when its reader closes it, unless it is an error without a body.
type countedBody struct {
	io.ReadCloser
	sizes   prometheus.Observer
	isError bool

	size   atomic.Int64
	closed atomic.Bool
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size.Add(int64(n))
	return n, err //nolint:wrapcheck // io.EOF must stay as it is
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	if size := b.size.Load(); !b.closed.Swap(true) && (size > 0 || !b.isError) {
		b.sizes.Observe(float64(size))
	}
	return b.ReadCloser.Close() //nolint:wrapcheck // the caller's own connection
}

package kube_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// slowBody delivers one byte at a time, after a pause that the end of the request's context ends.
type slowBody struct {
	ctx   context.Context //nolint:containedctx // of the request, as net/http's bodies have it
	pause time.Duration
	left  int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, io.EOF
	}
	if err := pause(b.ctx, b.pause); err != nil {
		return 0, err
	}
	p[0] = ' '
	return 1, nil
}

func (*slowBody) Write(p []byte) (int, error) { return len(p), nil }

func (*slowBody) Close() error { return nil }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slowServer is a transport whose responses have a header after one duration, and each of 5 bytes after another.
func slowServer(status int, header, body time.Duration) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if err := pause(req.Context(), header); err != nil {
			return nil, err
		}
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
			Body: &slowBody{req.Context(), body, 5}, Request: req,
		}, nil
	})
}

const shortTimeout = 10 * time.Second

// clientsOf returns the clients that a program may make of a Cluster.
func clientsOf(t *testing.T, cluster *kube.Cluster) map[string]*http.Client {
	t.Helper()
	own, err := rest.HTTPClientFor(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	second := connectTo(t, cluster.RESTConfig())
	return map[string]*http.Client{
		"HTTPClient": cluster.HTTPClient(), "RESTConfig": own, "second Cluster": second.HTTPClient(),
	}
}

func TestTimeoutDoesNotCountWaitForLimits(t *testing.T) {
	t.Parallel()
	const requests = 30
	for name, config := range map[string]rest.Config{
		"rate limit": {QPS: 1, Burst: 1}, "write limit": {},
	} {
		for _, client := range []string{"HTTPClient", "RESTConfig", "second Cluster"} {
			t.Run(name+", "+client, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					config := rest.CopyConfig(&config)
					config.Host, config.Timeout = "http://server", shortTimeout
					config.Transport = slowServer(http.StatusOK, time.Second, time.Second)
					cluster := connectTo(t, config)
					if config.QPS == 0 {
						cluster.SetWriteLimit(1)
					}
					failed := make(chan error, requests)
					for range requests {
						go func() { // waited for below
							req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
								"http://server/api/v1/namespaces/ns/pods", nil)
							if err == nil {
								_, err = send(clientsOf(t, cluster)[client], req)
							}
							failed <- err
						}()
					}
					for range requests {
						if err := <-failed; err != nil {
							t.Error(err)
						}
					}
				})
			})
		}
	}
}

func TestTimeoutEndsSlowResponses(t *testing.T) {
	t.Parallel()
	const pods = "/api/v1/namespaces/ns/pods"
	slowHeader := slowServer(http.StatusOK, time.Minute, 0)
	slowBytes := slowServer(http.StatusOK, time.Second, 3*time.Second)
	upgraded := slowServer(http.StatusSwitchingProtocols, time.Second, 3*time.Second)
	for name, test := range map[string]struct {
		path, method string
		server       http.RoundTripper
		want         error
	}{
		"header":            {pods, http.MethodGet, slowHeader, context.DeadlineExceeded},
		"header of a write": {pods, http.MethodPost, slowHeader, context.DeadlineExceeded},
		"header of a watch": {pods + "?watch=true", http.MethodGet, slowHeader, context.DeadlineExceeded},
		"header of an exec": {pods + "/web/exec", http.MethodPost, slowHeader, context.DeadlineExceeded},
		"body":              {pods, http.MethodGet, slowBytes, context.DeadlineExceeded},
		"body of a write":   {pods, http.MethodPost, slowBytes, context.DeadlineExceeded},
		"watch":             {pods + "?watch=true", http.MethodGet, slowBytes, nil},
		"exec":              {pods + "/web/exec", http.MethodPost, upgraded, nil},
		"proxy":             {pods + "/web/proxy/metrics", http.MethodGet, slowBytes, nil},
	} {
		for _, observed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					cluster := connectTo(t, &rest.Config{Host: "http://server", Timeout: shortTimeout, Transport: test.server})
					ctx := t.Context()
					if observed {
						ctx = kube.ObserveCalls(ctx, &observer{})
					}
					for client, http := range clientsOf(t, cluster) {
						began := time.Now()
						err := request(ctx, http, test.method, "http://server"+test.path)
						if !errors.Is(err, test.want) {
							t.Errorf("%s: %v, want %v", client, err, test.want)
						}
						var timeout net.Error
						if took := time.Since(began); test.want != nil && (took != shortTimeout || !errors.As(err, &timeout) ||
							!timeout.Timeout() || !strings.Contains(err.Error(), "Timeout of the rest.Config, 10s") ||
							retry.Classify(err) != retry.Transient) {
							t.Errorf("%s: after %s: %v (class %s)", client, took, err, retry.Classify(err))
						}
					}
				})
			})
		}
	}
}

// request sends a request, and reads the response.
func request(ctx context.Context, client *http.Client, method, url string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	_, err = send(client, req)
	return err
}

// A connection is a Writer, and its close releases the request's context.
func TestTimeoutKeepsConnectionsWritable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent context.Context
		next := slowServer(http.StatusSwitchingProtocols, 0, time.Minute)
		cluster := connectTo(t, &rest.Config{
			Host: "http://server", Timeout: shortTimeout,
			Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				sent = req.Context() //nolint:fatcontext // of the only request
				return next.RoundTrip(req)
			}),
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://server/api/v1/namespaces/ns/pods/web/exec", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cluster.HTTPClient().Transport.RoundTrip(req) //nolint:bodyclose // closed as a connection
		if err != nil {
			t.Fatal(err)
		}
		conn, isConn := resp.Body.(io.ReadWriteCloser)
		if !isConn {
			t.Fatalf("the body is a %T, want a connection", resp.Body)
		}
		if _, err := bufio.NewReader(conn).ReadByte(); err != nil || sent.Err() != nil {
			t.Errorf("a connection after a minute: %v, %v", err, sent.Err())
		}
		if err := conn.Close(); err != nil || sent.Err() == nil {
			t.Errorf("after the close: %v; the context has ended: %t", err, sent.Err() != nil)
		}
	})
}

// The clients of a Cluster have its Timeout, also those of a Cluster that was made from its config, and no others have it.
func TestTimeoutBelongsToOneCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := slowServer(http.StatusOK, time.Minute, 0)
		patient := connectTo(t, &rest.Config{Host: "http://server", Transport: server})
		config := patient.RESTConfig()
		config.Timeout = shortTimeout
		hasty := connectTo(t, config)
		config = hasty.RESTConfig()
		config.Timeout = time.Hour
		for name, test := range map[string]struct {
			cluster *kube.Cluster
			want    error
		}{
			"without a Timeout": {patient, nil}, "with a Timeout": {hasty, context.DeadlineExceeded},
			"with a longer one in addition": {connectTo(t, config), context.DeadlineExceeded},
		} {
			for client, http := range clientsOf(t, test.cluster) {
				err := request(t.Context(), http, "GET", "http://server/api/v1/namespaces/ns/pods")
				if !errors.Is(err, test.want) {
					t.Errorf("%s, %s: %v, want %v", name, client, err, test.want)
				}
			}
		}
	})
}

package kube_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// bodies is an API server that records the bodies that it has received completely.
type bodies struct {
	*httptest.Server

	mu       sync.Mutex
	complete []string      // guarded by mu
	requests atomic.Int64  // that have arrived, complete or not
	arrived  chan struct{} // receives a value for each of them
	protocol atomic.Int64  // major version of HTTP of the last one
	response chan struct{} // closed: requests are answered
	wrapped  atomic.Int64  // requests with the header of a wrapper
}

func newBodies(t *testing.T, http2 bool) *bodies {
	t.Helper()
	s := &bodies{response: make(chan struct{}), arrived: make(chan struct{}, 1000)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		s.arrived <- struct{}{}
		s.protocol.Store(int64(r.ProtoMajor))
		if r.Header.Get("Wrapped") != "" {
			s.wrapped.Add(1)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.complete = append(s.complete, r.Method+" "+string(body))
		s.mu.Unlock()
		if r.URL.Query().Has("watch") {
			_, _ = io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
		}
		select {
		case <-s.response:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, "done")
	}))
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *bodies) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.complete...)
}

func (s *bodies) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}}
}

func (s *bodies) request(ctx context.Context, t *testing.T, method, query string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/v1/namespaces/ns/configmaps"+query, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func clusterOf(t *testing.T, config *rest.Config) *kube.Cluster {
	t.Helper()
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	return cluster
}

func send(client *http.Client, req *http.Request) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// readerFunc is a body that calls a function when it is read, after the request's header was sent.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestContract06_DeadlineIsCheckedWhenBytesLeave(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newBodies(t, http2)
			close(server.response)
			cluster := clusterOf(t, server.config())
			var now atomic.Int64
			held := leadership.New(func() time.Duration { return time.Duration(now.Load()) }, time.Hour)
			leading, cancel := leadership.With(t.Context(), held)
			defer cancel()
			ctx := context.WithoutCancel(leading) // which only the connection stops
			if _, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodPost, "", strings.NewReader("before"))); err != nil {
				t.Fatal(err)
			}
			if got := server.protocol.Load(); (got == 2) != http2 {
				t.Fatalf("sent by HTTP/%d", got)
			}
			content := strings.NewReader("late")
			body := readerFunc(func(p []byte) (int, error) {
				now.Store(int64(time.Hour)) // the process was suspended, and continues
				return content.Read(p)
			})
			_, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodPost, "", body))
			if !errors.Is(err, kube.ErrLeadershipLost) {
				t.Errorf("a request of which part had left: %v, want ErrLeadershipLost", err)
			}
			if got := server.received(); len(got) != 1 {
				t.Errorf("the server has received %q, want the first one only", got)
			}
		})
	}
}

// The end aborts writes in flight; a watch with the same context continues.
func TestContract06_LossAbandonsWritesInFlightAndNoWatch(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		for how, end := range map[string]func(*leadership.Term){
			"loss":    func(l *leadership.Term) { l.Lose(errTaken) },
			"release": (*leadership.Term).Release,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				server := newBodies(t, http2)
				cluster := clusterOf(t, server.config())
				held, leading := lead(t)
				ctx := context.WithoutCancel(leading)
				watch, err := cluster.HTTPClient().Do(server.request(ctx, t, http.MethodGet, "?watch=1", nil))
				if err != nil {
					t.Fatal(err)
				}
				defer watch.Body.Close()
				if _, err := io.ReadFull(watch.Body, make([]byte, len("first "))); err != nil {
					t.Fatal(err)
				}
				results := make(chan error)
				go func() { // waited for below
					_, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodPut, "", strings.NewReader("in flight")))
					results <- err
				}()
				<-server.arrived // the watch
				select {
				case err := <-results:
					t.Fatalf("the write has ended: %v", err)
				case <-server.arrived:
				}
				end(held)
				if err := <-results; !errors.Is(err, kube.ErrLeadershipLost) {
					t.Errorf("the write in flight: %v, want ErrLeadershipLost", err)
				}
				close(server.response)
				if rest, err := io.ReadAll(watch.Body); err != nil || string(rest) != "done" {
					t.Errorf("the watch brings %q, %v after the end", rest, err)
				}
				arrived := server.requests.Load()
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
					if _, err := send(cluster.HTTPClient(), server.request(ctx, t, method, "", nil)); !errors.Is(err, kube.ErrLeadershipLost) {
						t.Errorf("%s after the end: %v, want ErrLeadershipLost", method, err)
					}
				}
				if got := server.requests.Load(); got != arrived {
					t.Errorf("%d writes arrived after the end", got-arrived)
				}
				if _, err := send(cluster.HTTPClient(), server.request(ctx, t, http.MethodGet, "", nil)); err != nil {
					t.Errorf("a read after the end: %v", err)
				}
				// The next term must have its own connections.
				_, next := lead(t)
				if _, err := send(cluster.HTTPClient(), server.request(next, t, http.MethodPost, "", nil)); err != nil {
					t.Errorf("a write of the next term: %v", err)
				}
			})
		}
	}
}

// The writes of every client of a Cluster must pass the user's wrappers (for example for authentication), and end with
// the leadership.
func TestContract06_EveryClientOfClusterChecksLeadership(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T, c *kube.Cluster) *http.Client{
		"the cluster's own": func(_ *testing.T, c *kube.Cluster) *http.Client { return c.HTTPClient() },
		"made of its config": func(t *testing.T, c *kube.Cluster) *http.Client {
			t.Helper()
			client, err := rest.HTTPClientFor(c.RESTConfig())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.CloseIdleConnections)
			return client
		},
		"of a cluster made of its config": func(t *testing.T, c *kube.Cluster) *http.Client {
			t.Helper()
			return clusterOf(t, c.RESTConfig()).HTTPClient()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newBodies(t, true)
			close(server.response)
			config := server.config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					req = req.Clone(req.Context())
					req.Header.Add("Wrapped", "yes")
					return next.RoundTrip(req)
				})
			})
			sender := client(t, clusterOf(t, config))
			var now atomic.Int64
			held := leadership.New(func() time.Duration { return time.Duration(now.Load()) }, time.Hour)
			leading, cancel := leadership.With(t.Context(), held)
			defer cancel()
			ctx := context.WithoutCancel(leading)
			for range 2 {
				if _, err := send(sender, server.request(ctx, t, http.MethodPost, "", strings.NewReader("in time"))); err != nil {
					t.Fatal(err)
				}
			}
			if got := server.wrapped.Load(); got != 2 {
				t.Errorf("%d of 2 writes passed the wrapper", got)
			}
			body := bytes.NewReader([]byte("late"))
			_, err := send(sender, server.request(ctx, t, http.MethodPost, "", readerFunc(func(p []byte) (int, error) {
				now.Store(int64(time.Hour))
				return body.Read(p)
			})))
			if !errors.Is(err, kube.ErrLeadershipLost) || len(server.received()) != 2 {
				t.Errorf("a late write: %v; the server has %q", err, server.received())
			}
		})
	}
}

// A config may have a custom transport, which cannot be copied: requests are cancelled.
func TestContract06_WritesThroughOtherTransportsAreCancelled(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	cluster := clusterOf(t, &rest.Config{Host: "http://server", Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		close(began)
		<-req.Context().Done()
		return nil, req.Context().Err()
	})})
	held, leading := lead(t)
	go func() { // ends at once
		<-began
		held.Lose(errTaken)
	}()
	req, err := http.NewRequestWithContext(context.WithoutCancel(leading), http.MethodPost, "http://server/api/v1/namespaces/ns/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(cluster.HTTPClient(), req); !errors.Is(err, kube.ErrLeadershipLost) {
		t.Errorf("a write in flight: %v, want ErrLeadershipLost", err)
	}
}

// observedBody calls a function before each read.
type observedBody struct {
	io.ReadCloser
	reads func()
}

func (b observedBody) Read(p []byte) (int, error) {
	b.reads()
	return b.ReadCloser.Read(p)
}

// Leadership is lost while the response to a write is read. The error must contain that, not only that the connection
// was closed.
func TestLossDuringResponse(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &bodies{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"ConfigMap",`)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))}
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			config := server.config()
			var reads func() // called before each read of a response
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(req)
					if err == nil {
						resp.Body = observedBody{resp.Body, reads}
					}
					return resp, err
				})
			})
			cluster := clusterOf(t, config)
			for _, observed := range []bool{false, true} {
				held, leading := lead(t)
				ctx := context.WithoutCancel(leading)
				if observed {
					ctx = kube.ObserveCalls(ctx, &observer{})
				}
				count := 0
				reads = func() {
					if count++; count == 2 { // the first read has returned the begin of the response
						go held.Lose(errTaken) // ends with the request
					}
				}
				client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
				if err != nil {
					t.Fatal(err)
				}
				err = client.Post().Namespace("ns").Resource("configmaps").Body([]byte("{}")).Do(ctx).Error()
				if !errors.Is(err, kube.ErrLeadershipLost) {
					t.Errorf("observed %v: %v, want ErrLeadershipLost", observed, err)
				}
			}
		})
	}
}

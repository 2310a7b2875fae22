package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// waitServer is a server in memory that records its requests.
type waitServer struct {
	*apitest.Server
	client *client.Client

	mu       sync.Mutex
	requests []string // guarded by mu; "discover", "list", "watch"
	unserved bool     // guarded by mu; no kind is served
}

func newWaitServer(t *testing.T) *waitServer {
	t.Helper()
	s := &waitServer{Server: apitest.New(
		apitest.Deployments(),
		apitest.Nodes(),
	)}
	config := s.Config("tests")
	config.Transport = s
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = client.New(client.Config{Cluster: cluster}); err != nil {
		t.Fatal(err)
	}
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *waitServer) RoundTrip(req *http.Request) (*http.Response, error) {
	kind := "list"
	switch parts := strings.Split(req.URL.Path, "/"); {
	case len(parts) < 5:
		kind = "discover"
	case req.URL.Query().Has("watch"):
		kind = "watch"
	}
	s.mu.Lock()
	s.requests = append(s.requests, kind)
	unserved := s.unserved
	s.mu.Unlock()
	if unserved {
		return &http.Response{
			StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: io.NopCloser(strings.NewReader("404 page not found")),
		}, nil
	}
	return s.Server.RoundTrip(req)
}

// asked returns the requests since the last call of asked.
func (s *waitServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.requests
	s.requests = nil
	return asked
}

func (s *waitServer) serve(served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved = !served
}

func webKey() kube.Key { return kube.Key{Namespace: "shop", Name: "web"} }

// put creates or changes the Deployment, with this number of available replicas of three.
func (s *waitServer) put(available int64) {
	s.Edit("deployments", webKey(), "controller", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"replicas": int64(3)}
		obj["status"] = map[string]any{
			"observedGeneration": int64(1), "replicas": int64(3), "updatedReplicas": int64(3), "availableReplicas": available,
		}
		return true
	})
}

// fail sets condition Progressing of the Deployment to False: it makes no progress.
func (s *waitServer) fail() {
	s.Edit("deployments", webKey(), "controller", func(obj map[string]any) bool {
		obj["status"] = map[string]any{
			"observedGeneration": int64(1),
			"conditions":         []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}},
		}
		return true
	})
}

func (s *waitServer) delete() {
	s.Edit("deployments", webKey(), "somebody", func(map[string]any) bool { return false })
}

func (s *waitServer) wait(ctx context.Context, options ...client.WaitOption) (*appsv1.Deployment, error) {
	return client.WaitFor[*appsv1.Deployment](ctx, s.client, webKey(), readiness.Of, options...)
}

// waiting is a wait that runs in another goroutine.
type waiting struct {
	obj   *appsv1.Deployment
	err   error
	after time.Duration
	ended chan struct{}
}

func (s *waitServer) begin(ctx context.Context, options ...client.WaitOption) *waiting {
	w := &waiting{ended: make(chan struct{})}
	began := time.Now()
	go func() { // waited for by the test, through w.ended
		defer close(w.ended)
		w.obj, w.err = s.wait(ctx, options...)
		w.after = time.Since(began)
	}()
	return w
}

// has fails the test unless the wait has ended after this time and without an error.
func (w *waiting) has(t *testing.T, after time.Duration) {
	t.Helper()
	<-w.ended
	if w.err != nil {
		t.Fatalf("after %s: %v", w.after, w.err)
	}
	if w.after != after || w.obj.Status.AvailableReplicas != 3 {
		t.Errorf("waited for %s, want %s; the object has %d replicas available", w.after, after, w.obj.Status.AvailableReplicas)
	}
}

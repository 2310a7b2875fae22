package kube_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A program that does not pass on the context of its work continues to write after it has lost the lease. This must be
// logged once per call site.
//
//nolint:paralleltest // it replaces the default logger
func TestWritesWithoutLeadershipAreReportedAfterLoss(t *testing.T) {
	var logged testlog.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	cluster := clusterOf(t, &rest.Config{Host: "http://server", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
	})})
	do := func(ctx context.Context, method, path string) {
		req, err := http.NewRequestWithContext(ctx, method, "http://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cluster.HTTPClient().Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	const maps = "/api/v1/namespaces/ns/configmaps"
	write := func(ctx context.Context) { do(ctx, http.MethodPost, maps) }

	write(t.Context())
	leadership, leading := lead(t)
	write(leading)
	write(t.Context()) // a process has writes of its own while it leads
	if logged.Len() > 0 {
		t.Errorf("reported before the loss:\n%s", &logged)
	}
	leadership.Lose(errTaken)
	write(leading) // refused
	do(t.Context(), http.MethodGet, maps)
	do(t.Context(), http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l")
	do(t.Context(), http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews")
	do(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews")
	do(t.Context(), http.MethodPost, "/apis/events.k8s.io/v1/namespaces/ns/events")
	if logged.Len() > 0 {
		t.Errorf("unexpected report:\n%s", &logged)
	}
	for range 3 {
		write(t.Context())
	}
	text := logged.String()
	if strings.Count(text, "write without leadership after leadership was lost") != 1 || !strings.Contains(text, "stray_test.go:") || !strings.Contains(text, "resource=configmaps") {
		t.Errorf("logged:\n%s\nwant one report with the call site", text)
	}
	_, next := lead(t)
	write(next)
	do(leading, http.MethodGet, maps) // an informer that others share goes on
	do(t.Context(), http.MethodDelete, maps+"/a")
	if got := logged.String(); got != text {
		t.Errorf("reported while it leads again:\n%s", got[len(text):])
	}
}

// BenchmarkUnobservedWrite measures the cost of the detection for a regular write.
func BenchmarkUnobservedWrite(b *testing.B) {
	cluster, err := kube.Connect(&rest.Config{Host: "http://server", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
	})})
	if err != nil {
		b.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://server/api/v1/namespaces/ns/configmaps", nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		resp, err := cluster.HTTPClient().Transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// newTracedServer returns a server whose reviews are spans.
func newTracedServer(cluster *kube.Cluster, provider *trace.TracerProvider, hooks ...webhook.Hook) (*webhook.Server, error) {
	server, err := webhook.New(webhook.Config{
		Cluster: cluster,
		Hooks:   hooks,
		Middleware: otelhttp.NewMiddleware("webhooks",
			otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{})),
	})
	return server, err
}

// A review is a span of the API server's trace, and the parent of the hook's spans.
func TestTracedReview(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	hook := webhook.Validating(hostsOptions(), func(ctx context.Context, _ *webhook.Request[*networkingv1.Ingress]) error {
		_, span := provider.Tracer("hosts").Start(ctx, "look up hosts")
		span.End()
		return nil
	})
	server, err := newTracedServer(cluster, provider, hook)
	if err != nil {
		t.Fatal(err)
	}
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",
		"kind":{"group":"networking.k8s.io","version":"v1","kind":"Ingress"},
		"object":{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"web"}}}}`
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hosts.ingresses.example.com?timeout=10s", strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	response := httptest.NewRecorder()
	server.ServeHTTP(response, request)
	if response.Code != http.StatusOK || !strings.Contains(response.Body.String(), `"allowed":true`) {
		t.Fatalf("the response is %d %s", response.Code, response.Body)
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans", len(ended))
	}
	child, parent := ended[0], ended[1]
	if child.Name() != "look up hosts" || child.Parent().SpanID() != parent.SpanContext().SpanID() {
		t.Errorf("the span of the hook is %q below %s", child.Name(), child.Parent().SpanID())
	}
	if got := parent.Parent(); got.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || got.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the parent of the review is %+v", got)
	}
	if parent.Name() != "POST /hosts.ingresses.example.com" {
		t.Errorf("the span of the review is %q", parent.Name())
	}
}

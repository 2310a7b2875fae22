package otel_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

// BenchmarkTrace measures the cost of Trace for a run with one cause, without a request and with one.
func BenchmarkTrace(b *testing.B) {
	for _, provider := range []struct {
		name string
		trace.TracerProvider
	}{
		{"off", nil},
		{"noop", noop.NewTracerProvider()},
		{"sampled-out", sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))},
		// Without a processor the SDK records nothing.
		{"recorded", sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropping{}))},
	} {
		var tracer middleware.Tracer
		if provider.TracerProvider != nil {
			var err error
			if tracer, err = otel.New(otel.Config{TracerProvider: provider.TracerProvider}); err != nil {
				b.Fatal(err)
			}
		}
		client := newEmptyClient(b)
		for name, call := range map[string]func(context.Context) error{
			"handler": func(context.Context) error { return nil },
			"request": func(ctx context.Context) error { return get(ctx, client) },
		} {
			b.Run(name+"/"+provider.name, func(b *testing.B) {
				handler := middleware.Trace[object](tracer)(func(ctx context.Context, _ object) error {
					return call(ctx)
				})
				withRun(b, func(ctx context.Context, widget object) {
					b.ReportAllocs()
					for b.Loop() {
						if err := handler(ctx, widget); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

// dropping is a span processor that discards spans.
type dropping struct{}

func (dropping) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropping) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropping) Shutdown(context.Context) error                  { return nil }
func (dropping) ForceFlush(context.Context) error                { return nil }

// withRun calls f with the context of a run.
func withRun(b *testing.B, f func(ctx context.Context, widget object)) {
	b.Helper()
	server := apitest.New(apiserver.Custom(apitest.KindNamed("Widget"), "widgets"))
	server.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool {
		(&unstructured.Unstructured{Object: obj}).SetAnnotations(map[string]string{"a": "b"})
		return true
	})
	cluster, err := kube.Connect(server.Config("operator"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ctrl, err := controller.New(controller.Config[object]{
		Name:      "widgets",
		Retriever: informer.RetrieveSelected[object](cluster, kube.Selection{Kind: apitest.KindNamed("Widget")}),
		Handler: func(ctx context.Context, widget object) error {
			defer cancel()
			f(ctx, widget)
			return nil
		},
		ResyncInterval: -1,
		Logger:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := ctrl.Run(ctx); err != nil {
		b.Fatal(err)
	}
}

// emptyServer is an API server that responds with {} to each request.
type emptyServer struct{}

func (emptyServer) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

func newEmptyClient(b *testing.B) *http.Client {
	b.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://server", Transport: emptyServer{}})
	if err != nil {
		b.Fatal(err)
	}
	return cluster.HTTPClient()
}

func get(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/apis/example.com/v1/namespaces/ns/widgets/a", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

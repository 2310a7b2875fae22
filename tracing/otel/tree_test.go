package otel_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

// Another client changes a Widget, with its trace in an annotation, while the worker processes another Widget. The
// handler reads a missing object and fails, is retried, and creates a Part, which another controller handles.
func TestTreeOfSpans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracer, exporter := newTracer(t, otel.Config{})
		w := newWorld(t)
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.URL.Query().Get("watch") == "" {
				time.Sleep(10 * time.Millisecond)
			}
			return do(), nil
		})
		handle := func(context.Context, object) error { return nil }
		widgets := w.run("Widget", tracer, func(ctx context.Context, widget object) error { return handle(ctx, widget) })
		w.run("Part", tracer, func(context.Context, object) error { return nil })
		w.put("a", 1)
		w.put("b", 1)
		time.Sleep(time.Minute)
		exporter.Reset()

		handle = func(ctx context.Context, widget object) error {
			if widget.GetName() == "b" {
				time.Sleep(2 * time.Second)
				return nil
			}
			ctx, own := trace.SpanFromContext(ctx).TracerProvider().Tracer("mine").Start(ctx, "my own")
			defer own.End()
			if run, _ := controller.RunFrom(ctx); run.Attempt == 0 {
				_, err := w.objects("parts").Get(ctx, "p", metav1.GetOptions{})
				return err
			}
			part := &unstructured.Unstructured{}
			part.SetGroupVersionKind(apitest.KindNamed("Part"))
			part.SetName("p")
			tracer.Inject(ctx, part)
			_, err := w.objects("parts").Create(ctx, part, metav1.CreateOptions{})
			return err
		}
		began := time.Now()
		w.put("b", 2)
		time.Sleep(500 * time.Millisecond)
		w.put("a", 2, "evenkeel.dev/traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		time.Sleep(time.Minute)
		want, err := os.ReadFile("testdata/tree.txt")
		if err != nil {
			t.Fatal(err)
		}
		got := draw(began, exporter.GetSpans())
		for resource, names := range map[string][]string{"widgets": {"a", "b"}, "parts": {"p"}} {
			for _, name := range names {
				uid := w.Object(resource, kube.Key{Namespace: "ns", Name: name}).GetUID()
				got = strings.ReplaceAll(got, string(uid), "uid of "+name)
			}
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("spans are not those of testdata/tree.txt (-want +got):\n%s\nall of them:\n%s", diff, got)
		}
		if record := widgets.RecentRuns()[0]; record.ID != 5 || record.TraceID != traceOfRun(exporter, "5") {
			t.Errorf("the record of run %d has the trace %q, want that of its spans", record.ID, record.TraceID)
		}
	})
}

// traceOfRun returns the trace of the run of widgets with a number.
func traceOfRun(exporter *tracetest.InMemoryExporter, id string) string {
	for _, span := range exporter.GetSpans() {
		if span.Name == "run widgets" && valueOf(span, "evenkeel.run.id") == id {
			return span.SpanContext.TraceID().String()
		}
	}
	return "no such run"
}

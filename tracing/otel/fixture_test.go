package otel_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTracer returns a Tracer and the exporter that receives its spans.
func newTracer(t *testing.T, config otel.Config, options ...sdktrace.TracerProviderOption) (*otel.Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	config.TracerProvider = sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exporter))...)
	tracer, err := otel.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return tracer, exporter
}

type object = *unstructured.Unstructured

// world is an API server with Widgets (with status) and Parts.
type world struct {
	*apitest.Server
	t       *testing.T
	cluster *kube.Cluster
	client  dynamic.Interface // of the controllers: its calls are observed
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Server: apitest.New(apitest.Widgets(), apitest.Parts())}
	w.cluster, w.client = apitest.Connect(w.Config("operator"))
	return w
}

func key(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

func (w *world) objects(resource string) dynamic.ResourceInterface {
	return w.client.Resource(apitest.Version().WithResource(resource)).Namespace("ns")
}

// put sets spec.value and annotations of a Widget as another client.
func (w *world) put(name string, value int, annotations ...string) {
	w.Edit("widgets", key(name), "somebody", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"value": int64(value)}
		for i := 0; i+1 < len(annotations); i += 2 {
			(&unstructured.Unstructured{Object: obj}).SetAnnotations(map[string]string{annotations[i]: annotations[i+1]})
		}
		return true
	})
}

// run runs a controller of a kind until the test ends.
func (w *world) run(kind string, tracer *otel.Tracer, handle controller.Handler[object]) *controller.Controller[object] {
	w.t.Helper()
	ctrl, err := controller.New(controller.Config[object]{
		Name:           strings.ToLower(kind) + "s",
		Retriever:      informer.RetrieveSelected[object](w.cluster, kube.Selection{Kind: apitest.KindNamed(kind)}),
		Handler:        controller.Chain(handle, middleware.Trace[object](tracer)),
		Workers:        1,
		Retry:          retry.Config{Every: retry.Policy{Base: time.Second, Jitter: -1}},
		ResyncInterval: -1,
		Logger:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	testrun.Start(w.t, ctrl.Run)
	return ctrl
}

// page draws spans as trees in the order of their starts, with the time since began.
type page struct {
	strings.Builder
	began    time.Time
	spans    tracetest.SpanStubs
	children map[trace.SpanID]tracetest.SpanStubs
	names    map[trace.SpanID]string
}

func draw(began time.Time, spans tracetest.SpanStubs) string {
	p := &page{began: began, spans: spans, children: map[trace.SpanID]tracetest.SpanStubs{}, names: map[trace.SpanID]string{}}
	for _, span := range spans {
		p.names[span.SpanContext.SpanID()] = span.Name
	}
	for _, span := range spans {
		parent := span.Parent.SpanID()
		if p.names[parent] == "" {
			parent = trace.SpanID{} // no parent, or one outside of spans
		}
		p.children[parent] = append(p.children[parent], span)
	}
	p.below(trace.SpanID{}, "")
	return p.String()
}

func (p *page) below(parent trace.SpanID, indent string) {
	children := p.children[parent]
	slices.SortStableFunc(children, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), a.EndTime.Compare(b.EndTime), cmp.Compare(a.Name, b.Name))
	})
	for _, span := range children {
		p.span(span, indent)
		p.below(span.SpanContext.SpanID(), indent+"  ")
	}
}

func (p *page) span(span tracetest.SpanStub, indent string) {
	fmt.Fprintf(p, "%s%s [%s +%s]", indent, span.Name, span.StartTime.Sub(p.began), span.EndTime.Sub(span.StartTime))
	if span.SpanKind != trace.SpanKindInternal {
		fmt.Fprintf(p, " %s", span.SpanKind)
	}
	if span.Status.Code != codes.Unset {
		fmt.Fprintf(p, " %s %q", span.Status.Code, span.Status.Description)
	}
	if parent := span.Parent; parent.IsValid() && p.names[parent.SpanID()] == "" {
		fmt.Fprintf(p, " below %s", parent.SpanID())
	}
	p.WriteString("\n")
	attributes := map[string]string{}
	for _, a := range span.Attributes {
		attributes[string(a.Key)] = a.Value.String()
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		fmt.Fprintf(p, "%s  - %s: %s\n", indent, name, attributes[name])
	}
	for _, event := range span.Events {
		fmt.Fprintf(p, "%s  ! %s [%s]\n", indent, event.Name, event.Time.Sub(p.began))
	}
	for _, link := range span.Links {
		name := cmp.Or(p.names[link.SpanContext.SpanID()], link.SpanContext.SpanID().String())
		fmt.Fprintf(p, "%s  > %s, through %s\n", indent, name, link.Attributes[0].Value.String())
	}
}

package otel_test

import (
	"context"
	"fmt"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

// Trace the runs of a controller. A program would configure an exporter, and shut down the provider after the
// controller has stopped.
func Example() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracer, err := otel.New(otel.Config{TracerProvider: provider})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	handler := func(_ context.Context, w widget) error {
		cancel() // one run is enough for an example
		fmt.Println("handled", w.GetName())
		return nil
	}
	ctrl, err := controller.New(controller.Config[widget]{
		Name:      "widgets",
		Retriever: oneWidget{}, // in a cluster: informer.Retrieve[...](cluster)
		Handler:   controller.Chain(handler, middleware.Trace[widget](tracer)),
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	for _, span := range exporter.GetSpans() {
		if span.Name != "queue wait" { // too short to be stable
			fmt.Println(span.Name)
		}
	}
	// Output:
	// handled hammer
	// cause listed
	// handle widgets
	// run widgets
}

// Inject the span into an object that another controller handles.
func ExampleTracer_Inject() {
	provider := sdktrace.NewTracerProvider()
	tracer, err := otel.New(otel.Config{TracerProvider: provider})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A handler's context has a span already.
	ctx, span := provider.Tracer("example").Start(context.Background(), "create")
	defer span.End()
	created := &metav1.PartialObjectMetadata{}
	tracer.Inject(ctx, created)
	_, found := created.Annotations["evenkeel.dev/traceparent"]
	fmt.Println(found)
	// Output: true
}

type widget = *metav1.PartialObjectMetadata

// oneWidget retrieves a single Widget that never changes.
type oneWidget struct{}

func (oneWidget) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return &metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: "10"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hammer", ResourceVersion: "1"}}},
	}, nil
}

func (oneWidget) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	stream := watch.NewFake()
	context.AfterFunc(ctx, stream.Stop)
	return stream, nil
}

func (oneWidget) Describe() informer.Description[widget] {
	return informer.Description[widget]{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Widget"}}
}

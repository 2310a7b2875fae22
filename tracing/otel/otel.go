package otel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
)

// defaultAnnotationPrefix is the prefix of the annotations with span contexts unless Config.AnnotationPrefix is set:
// "evenkeel.dev/traceparent" and "evenkeel.dev/tracestate".
const defaultAnnotationPrefix = "evenkeel.dev/"

// scopeName is the name of the instrumentation scope of all spans.
const scopeName = "github.com/evenkeel-go/evenkeel/tracing/otel"

// Config configures a Tracer. New copies it.
type Config struct {
	// TracerProvider creates the spans: GetTracerProvider() of go.opentelemetry.io/otel, or the program's own.
	// Required.
	TracerProvider trace.TracerProvider
	// Propagator writes span contexts to annotations and reads them. Its keys, with AnnotationPrefix, must be valid
	// annotation keys. Default propagation.TraceContext{}, the W3C's traceparent and tracestate.
	Propagator propagation.TextMapPropagator
	// AnnotationPrefix is the prefix of the annotations' keys. Controllers that should be linked to each other need the
	// same prefix. Default "evenkeel.dev/".
	AnnotationPrefix string
	// Parent makes a run a child of the span context in its object's annotation, and so a part of the same trace, if a
	// cause of the run is that the object was added or its annotations changed. Other runs are linked to it.
	//
	// With Parent, every client that may write the object decides to which trace the run belongs and, with most
	// samplers, whether it is recorded. Default false: runs are only linked.
	Parent bool
	// CauseObject returns the object of a cause from an informer's cache, so that the run is linked to the span context
	// in its annotation too. The Tracer calls it in recorded runs, for causes with other objects than the controller's
	// own. Default nil: no such links.
	CauseObject func(ctx context.Context, cause controller.Cause) (obj metav1.Object, found bool)
	// Classify must be the controllers' Config.Retry.Classify, so that error.type of a run is the class in logs and
	// metrics. Default nil: the classes of package retry.
	Classify func(error) retry.Class
}

// Tracer is a middleware.Tracer that creates OpenTelemetry spans. One Tracer serves any number of controllers. It is
// safe for concurrent use.
type Tracer struct {
	// Immutable after New.
	tracer      trace.Tracer
	propagator  propagation.TextMapPropagator
	prefix      string
	parent      bool
	causeObject func(context.Context, controller.Cause) (metav1.Object, bool)
	classify    func(error) retry.Class // may be nil
}

var _ middleware.Tracer = (*Tracer)(nil)

// New returns a Tracer.
//
// Errors: config has no TracerProvider.
func New(config Config) (*Tracer, error) {
	if config.TracerProvider == nil {
		return nil, fmt.Errorf("new OpenTelemetry tracer: %w",
			errors.New("TracerProvider is required: use otel.GetTracerProvider() of go.opentelemetry.io/otel, or the "+
				"program's own"))
	}
	t := &Tracer{
		tracer:      config.TracerProvider.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL)),
		propagator:  config.Propagator,
		prefix:      config.AnnotationPrefix,
		parent:      config.Parent,
		causeObject: config.CauseObject,
		classify:    config.Classify,
	}
	if t.propagator == nil {
		t.propagator = propagation.TraceContext{}
	}
	if t.prefix == "" {
		t.prefix = defaultAnnotationPrefix
	}
	return t, nil
}

package otel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// DefaultAnnotationPrefix begins the annotations that carry contexts unless
// Config.AnnotationPrefix is set: "evenkeel.dev/traceparent" and "evenkeel.dev/tracestate".
const DefaultAnnotationPrefix = "evenkeel.dev/"

// scopeName is the name of the instrumentation scope of all spans.
const scopeName = "github.com/evenkeel-go/evenkeel/tracing/otel"

// Config says where the spans go. It is taken by value.
type Config struct {
	// TracerProvider makes the spans. Required: go.opentelemetry.io/otel's
	// GetTracerProvider(), or a provider of the program's own.
	TracerProvider trace.TracerProvider
	// Propagator writes a context into annotations, and reads it from there. Default
	// propagation.TraceContext{}, the W3C's traceparent and tracestate. The keys that it
	// uses, behind AnnotationPrefix, must be fit for annotations.
	Propagator propagation.TextMapPropagator
	// AnnotationPrefix begins the annotations' keys. All controllers that are to be followed
	// from one to the next need the same. Default DefaultAnnotationPrefix.
	AnnotationPrefix string
	// Parent makes a run a child of the context in its object's annotation, and so a part of
	// the same trace, while that is news: when a cause of the run is that the object was
	// added, or its annotations changed. Later runs, and those after a restart, are linked.
	//
	// Whoever may write the object then decides which trace the run is in and, with most
	// samplers, whether it is recorded. Default false: runs are linked only.
	Parent bool
	// CauseObject returns the object that a cause is about, from an informer's cache, so that
	// the run is linked to the context in its annotation too. It is asked for causes that are
	// not about the controller's own object, of runs that are recorded. Default nil: no links
	// to those.
	CauseObject func(ctx context.Context, cause workqueue.Cause) (obj metav1.Object, found bool)
	// Classify is what the controllers have in Config.Retry.Classify, so that the error.type of
	// a run is the class that logs and metrics name. Default nil: classes of package retry.
	Classify func(error) retry.Class
}

// Tracer is a middleware.Tracer that makes OpenTelemetry spans. One serves any number of
// controllers. It is safe for concurrent use.
type Tracer struct {
	// Immutable after New.
	tracer      trace.Tracer
	propagator  propagation.TextMapPropagator
	prefix      string
	parent      bool
	causeObject func(context.Context, workqueue.Cause) (metav1.Object, bool)
	rules       *retry.Rules // for classes only
}

var _ middleware.Tracer = (*Tracer)(nil)

// New makes a Tracer.
//
// Errors: config has no TracerProvider.
func New(config Config) (*Tracer, error) {
	if config.TracerProvider == nil {
		return nil, fmt.Errorf("new OpenTelemetry tracer: %w",
			errors.New("no TracerProvider: set otel.GetTracerProvider() of go.opentelemetry.io/otel, or one of the program's own"))
	}
	rules, err := retry.New(retry.Config{Classify: config.Classify})
	if err != nil {
		return nil, fmt.Errorf("new OpenTelemetry tracer: %w", err)
	}
	t := &Tracer{
		tracer:      config.TracerProvider.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL)),
		propagator:  config.Propagator,
		prefix:      config.AnnotationPrefix,
		parent:      config.Parent,
		causeObject: config.CauseObject,
		rules:       rules,
	}
	if t.propagator == nil {
		t.propagator = propagation.TraceContext{}
	}
	if t.prefix == "" {
		t.prefix = DefaultAnnotationPrefix
	}
	return t, nil
}

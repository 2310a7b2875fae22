package otel

import (
	"context"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// Inject notes the span of ctx, a handler's context, in obj's annotations: in those of an object
// that is about to be written. The runs of whichever controller handles obj are then linked to
// it. It does nothing when ctx has no span, or one that is not sampled.
//
// Caller must: inject into what is created, or changes for another reason as well. The
// annotation is another one in each run. A handler that injects into an object in each run, or
// into each object that it applies, changes it in each run, and whoever watches it is woken; two
// controllers that do so to each other never come to rest.
func (t *Tracer) Inject(ctx context.Context, obj metav1.Object) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	fields := fields{t.prefix, maps.Clone(obj.GetAnnotations())} // the map may be shared: templates are
	if fields.annotations == nil {
		fields.annotations = map[string]string{}
	}
	// What is left of an older context, such as its tracestate, would be taken for this one's.
	for _, field := range t.propagator.Fields() {
		delete(fields.annotations, t.prefix+field)
	}
	t.propagator.Inject(ctx, fields)
	obj.SetAnnotations(fields.annotations)
}

// extract returns ctx with what obj's annotations carry in place of ctx's span, and the span
// context in it, which is not valid if there is none.
func (t *Tracer) extract(ctx context.Context, obj metav1.Object) (context.Context, trace.SpanContext) {
	annotations := obj.GetAnnotations()
	if len(annotations) == 0 {
		return ctx, trace.SpanContext{}
	}
	ctx = t.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), fields{t.prefix, annotations})
	return ctx, trace.SpanContextFromContext(ctx)
}

// linkAll links a run to the contexts in its object's annotations and in those of the objects
// that caused it, to each once.
func (t *Tracer) linkAll(ctx context.Context, run trace.Span, causes workqueue.Causes, obj kube.Object) {
	var linked []trace.SpanContext
	link := func(obj metav1.Object) {
		_, to := t.extract(ctx, obj)
		if !to.IsValid() || slices.ContainsFunc(linked, to.Equal) {
			return
		}
		linked = append(linked, to)
		run.AddLink(trace.Link{SpanContext: to, Attributes: attributes{}.text(keyLinkKey, kube.KeyOf(obj).String())})
	}
	if obj != nil {
		link(obj)
	}
	if t.causeObject == nil {
		return
	}
	for _, cause := range causes.List() {
		if cause.Source == workqueue.SourceSelf || cause.Object == (kube.Key{}) {
			continue
		}
		if about, found := t.causeObject(ctx, cause); found {
			link(about)
		}
	}
}

// isNews reports whether a run is about annotations that no run before it can have seen.
func isNews(run controller.Run) bool {
	for _, cause := range run.Causes.List() {
		if cause.Source == workqueue.SourceSelf &&
			(cause.Type == workqueue.CauseAdded || cause.Type == workqueue.CauseUpdated && cause.Changed.Has(kube.ChangedUID|kube.ChangedAnnotations)) {
			return true
		}
	}
	return false
}

// fields is a propagator's view of annotations.
type fields struct {
	prefix      string
	annotations map[string]string
}

var _ propagation.TextMapCarrier = fields{}

// Get implements propagation.TextMapCarrier.
func (f fields) Get(key string) string { return f.annotations[f.prefix+key] }

// Set implements propagation.TextMapCarrier.
func (f fields) Set(key, value string) { f.annotations[f.prefix+key] = value }

// Keys implements propagation.TextMapCarrier.
func (f fields) Keys() []string {
	var keys []string
	for key := range f.annotations {
		if field, ok := strings.CutPrefix(key, f.prefix); ok {
			keys = append(keys, field)
		}
	}
	return keys
}

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
)

// Inject writes the span of ctx, a handler's context, into obj's annotations. Call it before the handler writes obj:
// the runs of the controller that handles obj are then linked to the span. Inject does nothing if ctx has no span or
// its span is not sampled.
//
// The caller must inject only into objects that it creates or changes for another reason too, because the annotation
// has another value in each run. A handler that injects into an object in every run changes the object in every run,
// and its watchers run each time. Two controllers that do so to each other never become idle.
func (t *Tracer) Inject(ctx context.Context, obj metav1.Object) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	// the object may share its map, for example with a template
	fields := fields{t.prefix, maps.Clone(obj.GetAnnotations())}
	if fields.annotations == nil {
		fields.annotations = map[string]string{}
	}
	// Fields of an older context, such as its tracestate, must not be combined with this one's.
	for _, field := range t.propagator.Fields() {
		delete(fields.annotations, t.prefix+field)
	}
	t.propagator.Inject(ctx, fields)
	obj.SetAnnotations(fields.annotations)
}

// extract returns ctx with its span context replaced by the one in obj's annotations, and that span context. It is not
// valid if the annotations contain none.
func (t *Tracer) extract(ctx context.Context, obj metav1.Object) (context.Context, trace.SpanContext) {
	annotations := obj.GetAnnotations()
	if len(annotations) == 0 {
		return ctx, trace.SpanContext{}
	}
	ctx = t.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), fields{t.prefix, annotations})
	return ctx, trace.SpanContextFromContext(ctx)
}

// addLinks links a run to the span contexts in the annotations of its object and of its causes' objects, to each once.
func (t *Tracer) addLinks(ctx context.Context, run trace.Span, causes controller.Causes, obj kube.Object) {
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
		if cause.Source == controller.SourceSelf || cause.Object == (kube.Key{}) {
			continue
		}
		if causeObj, found := t.causeObject(ctx, cause); found {
			link(causeObj)
		}
	}
}

// hasNewAnnotations reports whether no earlier run can have seen the object's annotations.
func hasNewAnnotations(run controller.RunRecord) bool {
	for _, cause := range run.Causes.List() {
		if cause.Source == controller.SourceSelf &&
			(cause.Type == controller.CauseAdded || cause.Type == controller.CauseUpdated &&
				cause.Changed.Has(kube.ChangedUID|kube.ChangedAnnotations)) {
			return true
		}
	}
	return false
}

// fields implements propagation.TextMapCarrier for annotations with a prefix.
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

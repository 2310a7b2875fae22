package otel_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

const (
	theirTrace = "0af7651916cd43dd8448eb211c80319c"
	theirSpan  = "b7ad6b7169203331"
	theirs     = "00-" + theirTrace + "-" + theirSpan + "-01"
)

func annotated(name string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: annotations}}
}

// theirContext returns a context with the span of another client, with the given flags.
func theirContext(t *testing.T, flags trace.TraceFlags, state string) context.Context {
	t.Helper()
	traceID, err1 := trace.TraceIDFromHex(theirTrace)
	spanID, err2 := trace.SpanIDFromHex(theirSpan)
	states, err3 := trace.ParseTraceState(state)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: flags, TraceState: states,
	}))
}

func TestInject(t *testing.T) {
	t.Parallel()
	const traceparent, tracestate = "evenkeel.dev/traceparent", "evenkeel.dev/tracestate"
	for name, test := range map[string]struct {
		config    otel.Config
		ctx       context.Context //nolint:containedctx // a row of a table
		had, want map[string]string
	}{
		"no annotations": {ctx: theirContext(t, trace.FlagsSampled, ""), want: map[string]string{traceparent: theirs}},
		"other annotations": {
			ctx: theirContext(t, trace.FlagsSampled, "vendor=1"), had: map[string]string{"a": "b", traceparent: "old"},
			want: map[string]string{"a": "b", traceparent: theirs, tracestate: "vendor=1"},
		},
		"annotations of an older context": {
			ctx: theirContext(t, trace.FlagsSampled, ""), had: map[string]string{traceparent: "old", tracestate: "vendor=0"},
			want: map[string]string{traceparent: theirs},
		},
		"not sampled": {ctx: theirContext(t, 0, ""), had: map[string]string{traceparent: "old"}, want: map[string]string{traceparent: "old"}},
		"no span":     {ctx: t.Context()},
		"another prefix": {
			config: otel.Config{AnnotationPrefix: "shop.example/"}, ctx: theirContext(t, trace.FlagsSampled, ""),
			want: map[string]string{"shop.example/traceparent": theirs},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, _ := newTracer(t, test.config)
			before := maps.Clone(test.had)
			obj := annotated("a", test.had)
			tracer.Inject(test.ctx, obj)
			if diff := cmp.Diff(test.want, obj.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if !cmp.Equal(before, test.had) {
				t.Errorf("the original map was changed to %v", test.had)
			}
		})
	}
}

// A span context in the object determines the trace and the links of a run.
func TestSpanContextInObject(t *testing.T) {
	t.Parallel()
	self := func(typ controller.CauseType, changed kube.ChangedParts) controller.Cause {
		return controller.Cause{Type: typ, Source: controller.SourceSelf, Object: key("a"), Changed: changed}
	}
	const unrelated, linked, child = "unrelated", "linked", "child"
	with := map[string]string{"evenkeel.dev/traceparent": theirs}
	for name, test := range map[string]struct {
		parent      bool
		annotations map[string]string
		cause       controller.Cause
		want        string
	}{
		"added":                            {false, with, self(controller.CauseAdded, 0), linked},
		"a resync":                         {false, with, controller.Cause{Type: controller.CauseResync, Source: controller.SourceLoop}, linked},
		"no annotation":                    {false, map[string]string{"a": "b"}, self(controller.CauseAdded, 0), unrelated},
		"invalid context":                  {false, map[string]string{"evenkeel.dev/traceparent": "nonsense"}, self(controller.CauseAdded, 0), unrelated},
		"parent: added":                    {true, with, self(controller.CauseAdded, 0), child},
		"parent: annotations changed":      {true, with, self(controller.CauseUpdated, kube.ChangedSpec|kube.ChangedAnnotations), child},
		"parent: object replaced":          {true, with, self(controller.CauseUpdated, kube.ChangedUID), child},
		"parent: spec changed":             {true, with, self(controller.CauseUpdated, kube.ChangedSpec), linked},
		"parent: listed after a start":     {true, with, self(controller.CauseListed, 0), linked},
		"parent: change of another object": {true, with, controller.Cause{Type: controller.CauseAdded, Source: "parts", Object: key("p")}, linked},
		"parent: no context":               {true, nil, self(controller.CauseAdded, 0), unrelated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, exporter := newTracer(t, otel.Config{Parent: test.parent})
			// The span in the context of the controller's Run must be ignored.
			outer, span := sdktrace.NewTracerProvider().Tracer("main").Start(t.Context(), "main")
			defer span.End()
			ctx, run := tracer.Start(outer, runOf(test.cause), annotated("a", test.annotations))
			run.End(ctx, nil)
			got, root := unrelated, find(t, exporter, "run widgets")
			switch {
			case root.Parent.SpanID().String() == theirSpan && root.SpanContext.TraceID().String() == theirTrace:
				got = child
			case root.Parent.IsValid():
				got = "child of " + root.Parent.SpanID().String()
			case len(root.Links) == 1 && root.Links[0].SpanContext.SpanID().String() == theirSpan:
				got = linked
			case len(root.Links) > 0:
				got = "linked elsewhere"
			}
			if got != test.want {
				t.Errorf("the run is: %s, want %s", got, test.want)
			}
		})
	}
}

// Runs are linked to the objects of causes that CauseObject returns, to each span context once.
func TestLinksToObjectsOfCauses(t *testing.T) {
	t.Parallel()
	const other = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	var asked []string
	tracer, exporter := newTracer(t, otel.Config{CauseObject: func(_ context.Context, cause controller.Cause) (metav1.Object, bool) {
		asked = append(asked, cause.Object.Name)
		context := map[string]string{"p": theirs, "q": other}[cause.Object.Name]
		return annotated(cause.Object.Name, map[string]string{"evenkeel.dev/traceparent": context}), context != ""
	}})
	owned := func(name string) controller.Cause {
		return controller.Cause{Type: controller.CauseUpdated, Source: "parts", Object: key(name)}
	}
	run := runOf(
		controller.Cause{Type: controller.CauseUpdated, Source: controller.SourceSelf, Object: key("a")}, owned("p"), owned("q"), owned("gone"),
		controller.Cause{Type: controller.CauseTriggered, Source: "clock"})
	ctx, span := tracer.Start(t.Context(), run, annotated("a", map[string]string{"evenkeel.dev/traceparent": theirs}))
	span.End(ctx, nil)
	if !slices.Equal(asked, []string{"p", "q", "gone"}) {
		t.Errorf("CauseObject was called for %q, want only other objects than the controller's own", asked)
	}
	var got []string
	for _, link := range find(t, exporter, "run widgets").Links {
		got = append(got, link.SpanContext.SpanID().String()+" "+link.Attributes[0].Value.String())
	}
	if want := []string{theirSpan + " ns/a", "00f067aa0ba902b7 ns/q"}; !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
}

// With a propagator for baggage, the handler of a child run receives the baggage.
func TestCustomPropagator(t *testing.T) {
	t.Parallel()
	both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	tracer, _ := newTracer(t, otel.Config{Propagator: both, Parent: true})
	member, err := baggage.NewMember("tenant", "blue")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	obj := annotated("a", nil)
	tracer.Inject(baggage.ContextWithBaggage(theirContext(t, trace.FlagsSampled, ""), bag), obj)
	ctx, span := tracer.Start(t.Context(), runOf(controller.Cause{Type: controller.CauseAdded, Source: controller.SourceSelf}), obj)
	span.End(ctx, nil)
	if got := baggage.FromContext(ctx).Member("tenant").Value(); got != "blue" {
		t.Errorf("the tenant in the handler's baggage is %q, want blue", got)
	}
}

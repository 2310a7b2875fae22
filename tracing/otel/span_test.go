package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

var errBroken = errors.New("broken")

func TestNewRequiresTracerProvider(t *testing.T) {
	t.Parallel()
	if _, err := otel.New(otel.Config{}); err == nil || !strings.Contains(err.Error(), "TracerProvider") {
		t.Errorf("without a TracerProvider the error is %v, want one that names it", err)
	}
}

// runOf returns a run of a Widget with causes that starts now.
func runOf(causes ...controller.Cause) controller.RunRecord {
	return controller.RunRecord{Controller: "widgets", ID: 1, Key: key("a"), Started: time.Now(), Causes: controller.NewCauses(causes...)}
}

func valueOf(span tracetest.SpanStub, name string) string {
	for _, a := range span.Attributes {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}

func find(t *testing.T, exporter *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	var names []string
	for _, span := range exporter.GetSpans() {
		if span.Name == name {
			return span
		}
		names = append(names, span.Name)
	}
	t.Fatalf("no span %q, only %q", name, names)
	return tracetest.SpanStub{}
}

// fixed is a sampler with one decision. It records its calls.
type fixed struct {
	decision sdktrace.SamplingDecision
	asked    *[]string
}

func (f fixed) Description() string { return "fixed" }

func (f fixed) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	*f.asked = append(*f.asked, p.Name)
	return sdktrace.SamplingResult{Decision: f.decision}
}

// A run that is not sampled creates one span that does not record, and the handler's spans are not recorded either.
func TestRunNotSampled(t *testing.T) {
	t.Parallel()
	var asked []string
	tracer, exporter := newTracer(t, otel.Config{
		CauseObject: func(context.Context, controller.Cause) (metav1.Object, bool) {
			t.Error("CauseObject was called for a run that is not sampled")
			return nil, false
		},
	}, sdktrace.WithSampler(sdktrace.ParentBased(fixed{sdktrace.Drop, &asked})))
	ctx, span := tracer.Start(t.Context(), runOf(controller.Cause{Type: controller.CauseUpdated, Source: "parts", Object: key("p")}), nil)
	if span != nil {
		t.Errorf("Start returned the span %v, want none", span)
	}
	if !slices.Equal(asked, []string{"run widgets"}) {
		t.Errorf("the sampler was called for %q, want only the run", asked)
	}
	_, own := trace.SpanFromContext(ctx).TracerProvider().Tracer("mine").Start(ctx, "handler span")
	if own.IsRecording() {
		t.Error("a span of the handler is recorded although its run is not")
	}
	if spans := exporter.GetSpans(); len(spans) != 0 {
		t.Errorf("%d spans were exported", len(spans))
	}
}

// A trace that is recorded but not sampled is not exported, so it must have no trace ID.
func TestTraceIDOnlyOfSampledTraces(t *testing.T) {
	t.Parallel()
	for decision, want := range map[sdktrace.SamplingDecision]bool{sdktrace.RecordAndSample: true, sdktrace.RecordOnly: false} {
		var asked []string
		tracer, exporter := newTracer(t, otel.Config{}, sdktrace.WithSampler(fixed{decision, &asked}))
		ctx, span := tracer.Start(t.Context(), runOf(), nil)
		id := span.TraceID()
		span.End(ctx, nil)
		if !want {
			if id != "" {
				t.Errorf("the ID of a trace that is not sampled is %q", id)
			}
			continue
		}
		if run := find(t, exporter, "run widgets"); id != run.SpanContext.TraceID().String() {
			t.Errorf("the ID is %q, the trace has %q", id, run.SpanContext.TraceID())
		}
	}
}

func TestOutcomeOfRunInSpans(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, "a", errors.New("changed"))
	expired, cancelLate := context.WithTimeout(t.Context(), -1)
	defer cancelLate()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx            context.Context //nolint:containedctx // a row of a table
		answer         error
		outcome, class string
	}{
		"success":                      {nil, nil, "success", ""},
		"an error":                     {nil, errBroken, "error", "error"},
		"a conflict":                   {nil, fmt.Errorf("write: %w", conflict), "error", "conflict"},
		"a requeue":                    {nil, controller.RequeueAfter(time.Minute), "requeue", ""},
		"a requeue after cancellation": {cancelled, controller.RequeueAfter(time.Minute), "requeue", ""},
		"a terminal error":             {nil, controller.Terminal(conflict), "terminal", "terminal"},
		"a panic":                      {nil, &usercode.HandlerPanicError{Value: "oh", Stack: []byte("where")}, "panic", "panic"},
		"after the time limit":         {expired, errBroken, "timeout", "timeout"},
		"an error after cancellation":  {cancelled, errBroken, "cancelled", "error"},
		"success after the time limit": {expired, nil, "success", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, exporter := newTracer(t, otel.Config{})
			ctx, span := tracer.Start(t.Context(), runOf(), nil)
			if test.ctx != nil {
				ctx = test.ctx
			}
			span.End(ctx, test.answer)
			run, handle := find(t, exporter, "run widgets"), find(t, exporter, "handle widgets")
			for _, span := range []tracetest.SpanStub{run, handle} {
				outcome, class := valueOf(span, "evenkeel.outcome"), valueOf(span, "error.type")
				if outcome != test.outcome || class != test.class {
					t.Errorf("%s: outcome %q and class %q, want %q and %q", span.Name, outcome, class, test.outcome, test.class)
				}
				want := sdktrace.Status{}
				if test.class != "" {
					want = sdktrace.Status{Code: codes.Error, Description: test.answer.Error()}
				}
				if span.Status != want {
					t.Errorf("%s: status %v, want %v", span.Name, span.Status, want)
				}
			}
			if failed := len(handle.Events) == 1; failed != (test.class != "") {
				t.Errorf("the events of the handle span are %v", handle.Events)
			}
			if after := valueOf(run, "evenkeel.requeue_after"); (after == "60") != (test.outcome == "requeue") {
				t.Errorf("requeue_after is %q", after)
			}
			var panicked *usercode.HandlerPanicError
			if errors.As(test.answer, &panicked) && !slices.Contains(handle.Events[0].Attributes, attribute.String("exception.stacktrace", "where")) {
				t.Errorf("the exception event has no stack: %v", handle.Events[0].Attributes)
			}
		})
	}
}

func TestCallsAreSpans(t *testing.T) {
	t.Parallel()
	widgets := apitest.Version().WithResource("widgets")
	for name, test := range map[string]struct {
		call kube.Call
		want string
	}{
		"a patch of a status": {
			// The bodies, which can be Secrets, are not in the span.
			kube.Call{Verb: "patch", Resource: widgets, Subresource: "status", Key: key("a"), Status: 200, Request: []byte(`{}`), Response: []byte(`{}`)},
			"patch widgets/status http.request.method=PATCH k8s.namespace.name=ns evenkeel.call.verb=patch evenkeel.call.subresource=status " +
				"evenkeel.call.name=a evenkeel.call.resource=widgets.example.com http.response.status_code=200",
		},
		"a rejected dry run": {
			kube.Call{Verb: "deletecollection", Resource: widgets, Key: kube.Key{Namespace: "ns"}, DryRun: true, Status: 403},
			"deletecollection widgets http.request.method=DELETE k8s.namespace.name=ns evenkeel.call.verb=deletecollection " +
				"evenkeel.call.resource=widgets.example.com evenkeel.call.dry_run=true http.response.status_code=403 error.type=403 Error",
		},
		"no response": {
			kube.Call{Verb: "update", Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Key: kube.Key{Name: "n"}, Err: io.ErrUnexpectedEOF},
			"update nodes http.request.method=PUT evenkeel.call.verb=update evenkeel.call.name=n evenkeel.call.resource=nodes " +
				"error.type=*errors.errorString Error: unexpected EOF",
		},
		"no resource": {kube.Call{Status: 200}, "call http.response.status_code=200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, exporter := newTracer(t, otel.Config{})
			ctx, run := tracer.Start(t.Context(), runOf(), nil)
			call := test.call
			began := kube.Call{Verb: call.Verb, Resource: call.Resource, Subresource: call.Subresource, Key: call.Key, DryRun: call.DryRun, Began: time.Now()}
			callCtx := run.CallBegan(ctx, began)
			call.Began, call.Duration = began.Began, time.Second
			run.CallEnded(callCtx, call)
			spans := exporter.GetSpans()
			span := spans[len(spans)-1]
			got := span.Name
			for _, a := range span.Attributes {
				got += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
			}
			if span.Status.Code != codes.Unset {
				got += strings.TrimSuffix(fmt.Sprintf(" %s: %s", span.Status.Code, span.Status.Description), ": ")
			}
			if got != test.want {
				t.Errorf("the span is\n\t%s\nwant\n\t%s", got, test.want)
			}
			if span.SpanKind != trace.SpanKindClient || !span.StartTime.Equal(call.Began) || span.EndTime.Sub(span.StartTime) != time.Second {
				t.Errorf("the span is of kind %s, from %s to %s", span.SpanKind, span.StartTime, span.EndTime)
			}
		})
	}
}

// Two Tracers in one chain observe the same request. Each must end its own span.
func TestCallsOfTwoTracers(t *testing.T) {
	t.Parallel()
	tracer, exporter := newTracer(t, otel.Config{})
	ctx, first := tracer.Start(t.Context(), runOf(), nil)
	ctx, second := tracer.Start(ctx, runOf(), nil)
	call := kube.Call{Verb: "get", Resource: apitest.Version().WithResource("widgets"), Began: time.Now(), Status: 200}
	ctx = second.CallBegan(first.CallBegan(ctx, call), call)
	exporter.Reset()
	first.CallEnded(ctx, call)
	second.CallEnded(ctx, call)
	first.CallEnded(t.Context(), call) // a request that began before the span
	spans := exporter.GetSpans()
	if len(spans) != 2 || spans[1].Parent.SpanID() != spans[0].SpanContext.SpanID() {
		t.Errorf("spans of the requests:\n%s", draw(call.Began, spans))
	}
}

// A run starts at its first event or when the key became ready, but not when the loop planned it.
func TestStartTimeOfRun(t *testing.T) {
	t.Parallel()
	now := time.Now()
	before := func(d time.Duration, cause controller.Cause) controller.Cause {
		cause.Time = now.Add(-d)
		return cause
	}
	updated := controller.Cause{Type: controller.CauseUpdated, Source: controller.SourceSelf}
	owned := controller.Cause{Type: controller.CauseTriggered, Source: "owned"}
	requeue := controller.Cause{Type: controller.CauseRequeue, Source: controller.SourceLoop}
	for name, test := range map[string]struct {
		run  controller.RunRecord
		want string
	}{
		"an event that waited, and another": {
			controller.RunRecord{Wait: time.Second, Held: 400 * time.Millisecond, Causes: controller.NewCauses(before(time.Second, updated), before(time.Millisecond, owned))},
			"run [-1s] cause updated [-1s] queue wait [-1s +1s] held 0.4 cause triggered [-1ms] handle",
		},
		"a debounced event": {
			controller.RunRecord{Causes: controller.NewCauses(before(5*time.Second, updated))},
			"run [-5s] cause updated [-5s] handle",
		},
		"a requeue": {
			controller.RunRecord{Wait: time.Second, Causes: controller.NewCauses(before(time.Hour, requeue))},
			"run [-1s] cause requeue [-1s] delay 3599 queue wait [-1s +1s] handle",
		},
		"a requeue, and an event before it was due": {
			controller.RunRecord{Wait: time.Second, Causes: controller.NewCauses(before(time.Hour, requeue), before(time.Minute, owned))},
			"run [-1m0s] cause requeue [-1m0s] delay 3540 cause triggered [-1m0s] queue wait [-1s +1s] handle",
		},
		"a cause without a time": {
			controller.RunRecord{Wait: time.Second, Causes: controller.NewCauses(updated)},
			"run [-1s] cause updated [-1s] queue wait [-1s +1s] handle",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, exporter := newTracer(t, otel.Config{})
			test.run.Started = now
			ctx, span := tracer.Start(t.Context(), test.run, nil)
			span.End(ctx, nil)
			spans := exporter.GetSpans()
			slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
			got := []string{"run"}
			for _, s := range spans {
				switch at := s.StartTime.Sub(now); {
				case s.Name == "run":
					got[0] += fmt.Sprintf(" [%s]", at)
				case s.Name == "handle": // now
					got = append(got, s.Name)
				case s.EndTime.After(s.StartTime):
					got = append(got, fmt.Sprintf("%s [%s +%s]", s.Name, at, s.EndTime.Sub(s.StartTime)))
				default:
					got = append(got, fmt.Sprintf("%s [%s]", s.Name, at))
				}
				for _, name := range []string{"evenkeel.cause.delay", "evenkeel.queue.held"} {
					if value := valueOf(s, name); value != "" {
						got = append(got, name[strings.LastIndex(name, ".")+1:], value)
					}
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

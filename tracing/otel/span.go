package otel

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Start implements middleware.Tracer. For a run that is not sampled it creates only the span that the sampler needs.
func (t *Tracer) Start(
	ctx context.Context, run controller.RunRecord, obj kube.Object,
) (context.Context, middleware.Span) {
	now := time.Now()
	began := startTime(run)
	options := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithNewRoot()}
	if t.parent && obj != nil && hasNewAnnotations(run) {
		if parentCtx, remote := t.extract(ctx, obj); remote.IsValid() {
			ctx, options = parentCtx, options[:1]
		}
	}
	runCtx, span := t.tracer.Start(ctx, spanName("run", run.Controller), options...)
	if !span.IsRecording() {
		return runCtx, nil
	}
	span.SetAttributes(runAttributes(run)...)
	t.addLinks(ctx, span, run.Causes, obj)
	t.addCauseSpans(runCtx, run, began)
	if run.Wait > 0 {
		t.addSpan(runCtx, "queue wait", run.Started.Add(-run.Wait), run.Started,
			attributes{}.seconds(keyQueueHeld, run.Held))
	}
	handleCtx, handle := t.tracer.Start(runCtx, spanName("handle", run.Controller), trace.WithTimestamp(now),
		trace.WithAttributes(attributes{}.text(keyController, run.Controller)...))
	return handleCtx, &runSpan{tracer: t.tracer, classify: t.classify, run: span, handle: handle}
}

// startTime returns when the visible part of a run began: at the first event that caused it, or when the key became
// ready. Causes of the loop (retry, requeue, timer) do not count. They arise at the end of the previous run, so a
// planned delay of an hour would look like a slow run.
func startTime(run controller.RunRecord) time.Time {
	began := run.Started.Add(-run.Wait)
	for _, cause := range run.Causes.List() {
		if cause.Source != controller.SourceLoop && !cause.Time.IsZero() && cause.Time.Before(began) {
			began = cause.Time
		}
	}
	return began
}

// addCauseSpans creates a span without duration for each cause.
func (t *Tracer) addCauseSpans(ctx context.Context, run controller.RunRecord, began time.Time) {
	for _, cause := range run.Causes.List() {
		at, delay := cause.Time, began.Sub(cause.Time)
		if at.IsZero() {
			at, delay = began, 0
		}
		if delay > 0 {
			at = began
		}
		t.addSpan(ctx, "cause "+string(cause.Type), at, at, causeAttributes(cause, delay))
	}
}

// addSpan creates a span that has already ended.
func (t *Tracer) addSpan(ctx context.Context, name string, from, to time.Time, a attributes) {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(a...))
	span.End(trace.WithTimestamp(to))
}

// spanName returns "what controller", or what alone if the controller's name is not known.
func spanName(what, controller string) string {
	if controller == "" {
		return what
	}
	return what + " " + controller
}

// runSpan implements middleware.Span for one run. It is immutable.
type runSpan struct {
	tracer      trace.Tracer
	classify    func(error) retry.Class // may be nil
	run, handle trace.Span
}

// TraceID implements middleware.Span.
func (s *runSpan) TraceID() string {
	if context := s.run.SpanContext(); context.IsSampled() {
		return context.TraceID().String()
	}
	return "" // recorded in this process but not exported, so it cannot be looked up
}

// callKey is the key of a request's span in the request's context. The current span may be another one, because other
// observers may have added theirs.
type callKey struct{ run *runSpan }

// CallBegan implements kube.CallObserver.
func (s *runSpan) CallBegan(ctx context.Context, call kube.Call) context.Context {
	name := call.Verb + " " + call.Resource.Resource
	switch {
	case call.Verb == "":
		name = "call"
	case call.Subresource != "":
		name += "/" + call.Subresource
	}
	ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(call.Began))
	if span.IsRecording() {
		span.SetAttributes(callAttributes(call)...)
	}
	return context.WithValue(ctx, callKey{s}, span)
}

// CallEnded implements kube.CallObserver.
func (s *runSpan) CallEnded(ctx context.Context, call kube.Call) {
	span, ok := ctx.Value(callKey{s}).(trace.Span)
	if !ok {
		return
	}
	if call.Status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(call.Status))
	}
	switch {
	case call.Err != nil:
		span.SetAttributes(semconv.ErrorType(call.Err))
		span.SetStatus(codes.Error, call.Err.Error())
	case call.Status >= 400:
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(call.Status)))
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(call.Began.Add(call.Duration)))
}

// End implements middleware.Span.
func (s *runSpan) End(ctx context.Context, err error) {
	outcome := outcomeOf(err, ctx.Err())
	a := attributes{keyOutcome.String(string(outcome))}
	if outcome.Failed() {
		a = append(a, semconv.ErrorTypeKey.String(string(s.classOf(outcome, err))))
		var stack attributes
		if panicked, ok := errors.AsType[*usercode.HandlerPanicError](err); ok {
			stack = append(stack, semconv.ExceptionStacktrace(string(panicked.Stack)))
		}
		s.handle.RecordError(err, trace.WithAttributes(stack...))
		s.handle.SetStatus(codes.Error, err.Error())
		s.run.SetStatus(codes.Error, err.Error())
	}
	s.handle.SetAttributes(a...)
	s.handle.End()
	var requeue *controller.RequeueError
	if outcome == controller.OutcomeRequeue && errors.As(err, &requeue) {
		a = a.seconds(keyRequeue, requeue.After)
	}
	s.run.SetAttributes(a...)
	s.run.End()
}

// outcomeOf returns the controller's outcome for a handler's error. ended is the error of the run's context.
func outcomeOf(err, ended error) controller.Outcome {
	outcome := controller.OutcomeOf(err)
	switch {
	case outcome != controller.OutcomeError || ended == nil:
		return outcome
	case errors.Is(ended, context.DeadlineExceeded):
		return controller.OutcomeTimeout
	}
	return controller.OutcomeCancelled
}

// classOf returns the controller's class of a failure.
func (s *runSpan) classOf(outcome controller.Outcome, err error) retry.Class {
	switch outcome {
	case controller.OutcomePanic:
		return retry.Panic
	case controller.OutcomeTerminal:
		return retry.Terminal
	case controller.OutcomeTimeout:
		return retry.Timeout
	}
	if class := s.userClass(err); class != "" {
		return class
	}
	return retry.Classify(err)
}

// userClass returns the result of Config.Classify, or "" if it is not set or panics, like the controller.
func (s *runSpan) userClass(err error) (class retry.Class) {
	if s.classify == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			class = ""
		}
	}()
	return s.classify(err)
}

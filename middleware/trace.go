package middleware

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Tracer creates spans of runs. Package tracing/otel has one for OpenTelemetry. It must be safe for concurrent use.
type Tracer interface {
	// Start is called before the Handler. run contains the key, the causes and the times of the run
	// (controller.RunFrom); outside of a controller only Key and Started are set. obj is the object, or nil for a
	// Reconciler. Start may read obj but must not keep it, because it belongs to the Handler.
	//
	// The Handler receives the returned context, which must be ctx or derived from it. If the returned Span is nil, the
	// run is not recorded, and Tracer is not called for it again.
	Start(ctx context.Context, run controller.RunRecord, obj kube.Object) (context.Context, Span)
}

// Span is a recorded run that has not ended yet.
type Span interface {
	// CallObserver is called for the requests that are made with the Handler's context, which
	// controller.RunRecord.Calls counts. Its methods may be called concurrently, and after End.
	kube.CallObserver
	// TraceID returns the ID of the trace, for logs and exemplars. "" means that the trace has no ID.
	TraceID() string
	// End is called once, with the Handler's context and result: a *usercode.HandlerPanicError if it panicked.
	End(ctx context.Context, err error)
}

// Trace makes tracer create spans for each call of the wrapped Handler, and for the requests that it makes, and stores
// the trace's ID in controller.RunRecord.TraceID. It should be first in a Chain, so that it measures the other
// middleware. With a nil tracer, also a nil pointer, it returns the Handler unchanged.
//
// A panic of the Handler ends the spans and continues, with its stack.
func Trace[T any](tracer Tracer) controller.Middleware[T] {
	return func(next controller.Handler[T]) controller.Handler[T] {
		if usercode.IsNil(tracer) {
			return next
		}
		return func(ctx context.Context, obj T) error {
			object, _ := any(obj).(kube.Object)
			return traced(ctx, tracer, keyOf(obj), object, func(ctx context.Context) error { return next(ctx, obj) })
		}
	}
}

// errNoReturn is the error that a Span receives if the Handler does not return.
var errNoReturn = errors.New("the handler ended its goroutine (runtime.Goexit; t.FailNow does that)")

func traced(
	ctx context.Context, tracer Tracer, key kube.Key, obj kube.Object, handle func(context.Context) error,
) (err error) {
	run, ok := controller.RunFrom(ctx)
	if !ok {
		run = controller.RunRecord{Key: key, Started: time.Now()}
	}
	ctx, span := tracer.Start(ctx, run, obj)
	if span == nil {
		return handle(ctx)
	}
	if id := span.TraceID(); id != "" {
		if running := observers.RunningFrom(ctx); running != nil {
			running.SetTraceID(id)
		}
	}
	err = errNoReturn
	defer func() {
		value := recover()
		if value == nil {
			span.End(ctx, usercode.Error(err))
			return
		}
		span.End(ctx, &usercode.HandlerPanicError{Value: value, Stack: debug.Stack()})
		// Panic again here, where the stack still contains the frames of the first panic.
		panic(value)
	}()
	return handle(kube.ObserveCalls(ctx, span))
}

package middleware

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Tracer makes spans of runs. Package tracing/otel has one for OpenTelemetry. It must be safe
// for concurrent use.
type Tracer interface {
	// Start is called before the Handler. run is why and when it runs (controller.RunFrom);
	// outside of a controller only Key and Started are set. obj is the object, to be read and
	// not to be kept, because it is the Handler's; nil for a Reconciler.
	//
	// The context that it returns is the Handler's: ctx, or one made of it. A nil Span says
	// that this run is not recorded: nothing more is asked about it.
	Start(ctx context.Context, run controller.RunRecord, obj kube.Object) (context.Context, Span)
}

// Span is a run under way that is recorded.
type Span interface {
	// CallObserver hears of the requests that are made with the Handler's context, as
	// controller.RunRecord.Calls says. They may run at once, and may go on after End.
	kube.CallObserver
	// TraceID is what the trace can be found by, for logs and exemplars. Empty: by nothing.
	TraceID() string
	// End is called once, with the Handler's context and answer: a *controller.PanicError for a
	// panic.
	End(ctx context.Context, err error)
}

// Trace makes tracer create spans for each call of the wrapped Handler, and for the requests that it makes, and stores
// the trace's ID in controller.RunRecord.TraceID. It should be first in a Chain, so that it measures the other middleware.
// With a nil tracer, also a nil pointer, it returns the Handler unchanged.
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

// errNoReturn is what a Span is told of a Handler that does not return.
var errNoReturn = errors.New("the handler ended its goroutine (runtime.Goexit; t.FailNow does that)")

func traced(ctx context.Context, tracer Tracer, key kube.Key, obj kube.Object, handle func(context.Context) error) (err error) {
	run, ok := controller.RunFrom(ctx)
	if !ok {
		run = controller.RunRecord{Key: key, Started: time.Now()}
	}
	ctx, span := tracer.Start(ctx, run, obj)
	if span == nil {
		return handle(ctx)
	}
	if id := span.TraceID(); id != "" {
		controller.SetTraceID(ctx, id)
	}
	err = errNoReturn
	defer func() {
		value := recover()
		if value == nil {
			span.End(ctx, usercode.Error(err))
			return
		}
		span.End(ctx, &controller.PanicError{Value: value, Stack: debug.Stack()})
		// From here, where the frames of the first panic are still on the stack for whoever
		// prints it.
		panic(value)
	}()
	return handle(kube.ObserveCalls(ctx, span))
}

package controller

import (
	"context"
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Handler brings one object to its desired state. It is the user's code.
//
// The object belongs to the handler: it is a fresh copy, free to change. A handler is
// called when its object was listed, added or changed, when the resync interval since
// the last success has passed, when a source asks for it, and as its own last answer
// said. It is not called for objects that are gone. An object that has a finalizer and is
// being deleted comes in an ordinary call, with its DeletionTimestamp set: clean up, remove
// your finalizer, and return nil.
//
// Guarantees:
//   - One object is never handled twice at once; different objects are, up to
//     Config.Workers, so a Handler must be safe for concurrent use.
//   - After the last change to an object, its handler is called at least once with that
//     state or a later one. States in between may be left out.
//   - ctx is cancelled only after the drain time, when leadership is lost, or when
//     Config.Timeout has passed. RunFrom(ctx) tells why the handler runs.
//
// Answers:
//   - nil: done until something changes.
//   - RequeueAfter(d): done for now; run again after d. Not a failure.
//   - Terminal(err): failed, and trying again is useless until the object changes.
//   - any other error, or a panic: failed; tried again as Config.Retry says.
type Handler[T kube.Object] interface {
	Handle(ctx context.Context, obj T) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc[T kube.Object] func(ctx context.Context, obj T) error

// Handle implements Handler.
func (f HandlerFunc[T]) Handle(ctx context.Context, obj T) error { return f(ctx, obj) }

// Reconciler does what a Handler does, for a key whose object may be gone. What is said of
// Handler holds for it otherwise.
//
// It reads the object itself: make an Informer, read from it, and set Config.Informer.
//
// It is called for deletions too, as a best effort: those that happen while no process
// works are not told, nor is a failed one tried again after a restart. What must be
// cleaned up for certain needs a finalizer. A key without an object is not resynced.
type Reconciler interface {
	Reconcile(ctx context.Context, key kube.Key) error
}

// ReconcilerFunc is a function as a Reconciler.
type ReconcilerFunc func(ctx context.Context, key kube.Key) error

// Reconcile implements Reconciler.
func (f ReconcilerFunc) Reconcile(ctx context.Context, key kube.Key) error { return f(ctx, key) }

// Middleware wraps a Handler in another one. Package middleware has some.
type Middleware[T kube.Object] func(Handler[T]) Handler[T]

// Chain wraps handler in the given middleware. The first one is the outermost: it is
// called first and sees the final answer.
func Chain[T kube.Object](handler Handler[T], middleware ...Middleware[T]) Handler[T] {
	for _, wrap := range slices.Backward(middleware) {
		handler = wrap(handler)
	}
	return handler
}

package controller

import (
	"context"
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Handler brings one object to its desired state. It is the user's code. T is the type of the objects, or kube.Key
// (see Reconciler).
//
// The handler owns the object: it is a fresh copy that the handler may change. A handler is called after its object was
// listed, added or changed, when the resync interval since the last success has passed, when a source enqueues the key,
// and when the handler's last result asked for it. It is not called for deleted objects. For an object that is being
// deleted and has a finalizer it is called with DeletionTimestamp set: clean up, remove the finalizer, and return nil.
//
// Guarantees:
//   - One object is never handled twice at once. Up to Config.Workers different objects are handled at once, so a
//     Handler must be safe for concurrent use.
//   - After the last change to an object, its handler is called at least once with that state or a later one.
//     States in between may be skipped.
//   - ctx is cancelled only after the drain time, when leadership is lost, or after Config.Timeout. RunFrom(ctx)
//     returns why the handler runs.
//
// Results:
//   - nil: success; the next run follows the next change or resync.
//   - RequeueAfter(d, reason): success; the next run is after d at the latest.
//   - Terminal(err): failure; no retry until the object changes.
//   - any other error, or a panic: failure; retried as Config.Retry defines.
type Handler[T any] func(ctx context.Context, obj T) error

// Reconciler is a Handler that gets keys instead of objects, also the keys of deleted objects. It reads the object
// itself, usually from the informer that is set as Config.Informer.
//
// Calls for deleted objects are a best effort: deletions while no process runs are not seen, and failed calls are not
// retried after a restart. Cleanup that must not be lost needs a finalizer. A key without an object is not resynced.
type Reconciler = Handler[kube.Key]

// Middleware wraps a Handler in another one. Package middleware has the usual ones. A Middleware[kube.Key] wraps a
// Reconciler.
type Middleware[T any] func(next Handler[T]) Handler[T]

// Chain wraps handler in the given middleware. The first one is the outermost: it is called first and receives the
// final result.
func Chain[T any](handler Handler[T], middleware ...Middleware[T]) Handler[T] {
	for _, wrap := range slices.Backward(middleware) {
		handler = wrap(handler)
	}
	return handler
}

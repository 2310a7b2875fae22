package middleware

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// defaultBlockedAfter is the default of FinalizerOptions.BlockedAfter.
const defaultBlockedAfter = 5 * time.Minute

// reasonDeletionBlocked is the reason of the Event about a blocked deletion.
const reasonDeletionBlocked = "DeletionBlocked"

// FinalizerOptions configure Finalizer.
type FinalizerOptions[T kube.Object] struct {
	// Deleted is called for an object that is being deleted and does not have the finalizer: its teardown is done, or
	// it was deleted before it got the finalizer, and other finalizers keep it. Its return value is the result of the
	// run. Default: nothing is called.
	Deleted func(ctx context.Context, obj T) error
	// BlockedAfter is the time after which a deletion counts as blocked. Default 5 min; negative: 0.
	BlockedAfter time.Duration
	// Blocked is called in each run of an object with a blocked deletion, after the teardown, for example to set a
	// condition. Default: nothing is called.
	Blocked func(ctx context.Context, obj T, report finalizer.Report)
	// Events writes a warning in each run of an object with a blocked deletion. An event.Recorder merges repeated
	// Events. Default: the event.Recorder of the finalizer's Cluster, or none.
	Events controller.EventRecorder
}

// Finalizer manages a finalizer around the wrapped Handler:
//
//   - A live object gets the finalizer before the Handler is called. If that request finds the object gone or being
//     deleted, the Handler is not called: the event of the deletion follows.
//   - For an object that is being deleted and has the finalizer, it runs the teardown (see finalizer.Finalizer)
//     instead of the Handler. The result of a step is the result of the run.
//   - For an object that is being deleted and does not have the finalizer, it only calls options.Deleted.
//
// If Blocked is set, or Events are written, it reports deletions that take longer than BlockedAfter, also if only
// finalizers of other controllers block them. A run before that time requeues the object for then, unless a step has
// returned something else.
//
// Finalizer panics if f is nil.
func Finalizer[T kube.Object](f *finalizer.Finalizer[T], options FinalizerOptions[T]) controller.Middleware[T] {
	if f == nil {
		panic("middleware.Finalizer: the finalizer is nil: finalizer.New makes one")
	}
	options.BlockedAfter = cmp.Or(options.BlockedAfter, defaultBlockedAfter)
	if usercode.IsNil(options.Events) {
		options.Events = nil
	}
	return func(next controller.Handler[T]) controller.Handler[T] {
		return func(ctx context.Context, obj T) error {
			if obj.GetDeletionTimestamp() != nil {
				return options.deleting(ctx, f, obj)
			}
			version := obj.GetResourceVersion()
			switch _, err := f.Ensure(ctx, obj); {
			case errors.Is(err, client.ErrTerminating), errors.Is(err, client.ErrGone),
				errors.Is(err, client.ErrReplaced):
				return nil
			case err != nil:
				return err
			}
			updateVersion(ctx, obj, version)
			return next(ctx, obj)
		}
	}
}

func (o FinalizerOptions[T]) deleting(ctx context.Context, f *finalizer.Finalizer[T], obj T) error {
	var err error
	switch {
	case slices.Contains(obj.GetFinalizers(), f.Name()):
		err = f.Teardown(ctx, obj)
	case o.Deleted != nil:
		err = o.Deleted(ctx, obj)
	}
	events := apiobject.Events(o.Events, apiobject.ObserversOf(f.Client().Cluster()))
	if o.Blocked == nil && events == nil {
		return err
	}
	report := f.Blocking(obj)
	if len(report.Finalizers) == 0 {
		return err
	}
	if wait := o.BlockedAfter - max(time.Since(report.Since), 0); wait > 0 {
		if err == nil {
			return controller.RequeueAfter(wait, "is the deletion blocked?")
		}
		return err
	}
	if o.Blocked != nil {
		o.Blocked(ctx, obj, report)
	}
	if events != nil {
		events.Event(referenceTo(f.Client().Cluster(), obj), corev1.EventTypeWarning, reasonDeletionBlocked, "Delete",
			capitalized(report.String()))
	}
	return err
}

// referenceTo returns the object reference for an Event.
func referenceTo(cluster *kube.Cluster, obj kube.Object) corev1.ObjectReference {
	ref := corev1.ObjectReference{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}
	// The Event names the object even without a kind. Only unregistered types have no kind, and requests for them have
	// failed earlier.
	if kind, err := cluster.KindOf(obj); err == nil {
		ref.APIVersion, ref.Kind = kind.GroupVersion().String(), kind.Kind
	}
	return ref
}

// capitalized returns text with its first ASCII letter in upper case.
func capitalized(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

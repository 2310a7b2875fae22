package middleware

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// defaultBlockedAfter is the default of FinalizerOptions.BlockedAfter.
const defaultBlockedAfter = 5 * time.Minute

// reasonDeletionBlocked is the reason of the Event about a deletion that is blocked.
const reasonDeletionBlocked = "DeletionBlocked"

// FinalizerOptions say what Finalizer does besides the teardown.
type FinalizerOptions[T kube.Object] struct {
	// Deleted is called for an object that is being deleted and does not have the finalizer: its
	// teardown is done, or it was deleted before it got one, and others still keep it. What it
	// returns is the run's answer. Default: nothing is done.
	Deleted func(ctx context.Context, obj T) error
	// BlockedAfter is how long a deletion may take before it is called blocked. Default 5 min;
	// negative: it is from the beginning.
	BlockedAfter time.Duration
	// Blocked is called at each run of an object whose deletion is blocked, after the teardown: to
	// say so in the object's status, for one. Default: nothing is done.
	Blocked func(ctx context.Context, obj T, report finalizer.Report)
	// Events receives a warning at each run of an object whose deletion is blocked; event.Recorder
	// sends those that repeat as one. Default: none are written.
	Events controller.EventRecorder
}

// Finalizer puts the life of a finalizer around the wrapped Handler:
//
//   - A live object gets the finalizer, and that is kept, before the Handler is called. If the
//     object is found gone or being deleted then, the Handler is not called: the event is on its way.
//   - An object that is being deleted is torn down, if it has the finalizer; see
//     finalizer.Finalizer. The Handler is not called. What a step returns is the run's answer.
//   - An object that is being deleted without the finalizer is left alone; see Deleted.
//
// A deletion that takes longer than BlockedAfter is reported, whoever blocks it, if Blocked or
// Events is set; a run before that asks for another one at that time, unless a step has answered
// something else.
//
// Finalizer panics when f is nil.
func Finalizer[T kube.Object](f *finalizer.Finalizer[T], options FinalizerOptions[T]) controller.Middleware[T] {
	if f == nil {
		panic("middleware.Finalizer: the finalizer is nil: finalizer.New makes one")
	}
	options.BlockedAfter = cmp.Or(options.BlockedAfter, defaultBlockedAfter)
	if usercode.IsNil(options.Events) {
		options.Events = nil // a recorder that is switched off leaves a nil pointer
	}
	return func(next controller.Handler[T]) controller.Handler[T] {
		return func(ctx context.Context, obj T) error {
			if obj.GetDeletionTimestamp() != nil {
				return options.deleting(ctx, f, obj)
			}
			version := obj.GetResourceVersion()
			switch _, err := f.Ensure(ctx, obj); {
			case errors.Is(err, client.ErrTerminating), errors.Is(err, client.ErrGone), errors.Is(err, client.ErrReplaced):
				return nil
			case err != nil:
				return err
			}
			moveVersion(ctx, obj, version)
			return next(ctx, obj)
		}
	}
}

func (o FinalizerOptions[T]) deleting(ctx context.Context, f *finalizer.Finalizer[T], obj T) error {
	var err error
	switch {
	case finalizer.Has(obj, f.Name()):
		err = f.Teardown(ctx, obj)
	case o.Deleted != nil:
		err = o.Deleted(ctx, obj)
	}
	if o.Blocked == nil && o.Events == nil {
		return err
	}
	report := f.Blocking(obj, time.Now())
	if !report.Blocked() {
		return err
	}
	if wait := o.BlockedAfter - report.For; wait > 0 {
		if err == nil {
			return controller.RequeueAfter(wait, "is the deletion blocked?")
		}
		return err
	}
	if o.Blocked != nil {
		o.Blocked(ctx, obj, report)
	}
	if o.Events != nil {
		o.Events.Event(referenceTo(f.Client().Cluster(), obj), corev1.EventTypeWarning, reasonDeletionBlocked, "Delete", capitalized(report.String()))
	}
	return err
}

// referenceTo names an object for Events.
func referenceTo(cluster *kube.Cluster, obj kube.Object) corev1.ObjectReference {
	ref := corev1.ObjectReference{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}
	// Without a kind the Event still names the object. There is none only for types that nobody has
	// registered, and their requests have failed before.
	if kind, err := cluster.KindOf(obj); err == nil {
		ref.APIVersion, ref.Kind = kind.GroupVersion().String(), kind.Kind
	}
	return ref
}

// capitalized returns text with its first letter, an ASCII one, in upper case.
func capitalized(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

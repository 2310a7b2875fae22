package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

// reasonFailed is the reason of Stalled that status.Summarize sets too.
const reasonFailed = "Failed"

// defaultStatusTimeout is the default of StatusOptions.Timeout.
const defaultStatusTimeout = 5 * time.Second

// StatusOptions configure Status. With the zero value it only commits the changes of the Handler.
type StatusOptions[T kube.Object] struct {
	// SetObservedGeneration sets status.observedGeneration of the object to generation, the generation at the start
	// of the run, for kinds with that field. It is called if the Handler has succeeded, and after OnError. It is not
	// called for a failure without OnError, because the status of an earlier run would then appear as that of the
	// current generation. Default: it is not set.
	SetObservedGeneration func(obj T, generation int64)
	// OnError sets the failure of the Handler in the status. err is the error that the Handler returned, other than
	// RequeueAfter, or a *usercode.HandlerPanicError. obj is as the Handler left it. OnError is not called for a run
	// that was interrupted because the process shuts down or has lost leadership: the run is repeated.
	// FailureConditions returns a typical OnError. Default: the failure is not in the status.
	OnError func(obj T, err error)
	// Timeout is the time limit of the commit. Default 5 s.
	Timeout time.Duration
	// Commit are the options of the commit: client.FieldOwner, client.DryRun, client.FieldValidation.
	Commit []client.WriteOption
}

// Status commits the changes of the wrapped Handler to the object's status: one patch at the end of the run if anything
// differs (see status.Commit). It commits also if the Handler returns an error or panics, and if the context of the run
// has ended, but not after leadership is lost. CommitStatus commits during the run.
//
// If the commit succeeds, the result of the Handler stays, including RequeueAfter. If it fails, the run has failed:
// Status returns both errors, and errors.Is finds the reason of the commit's error, such as a conflict. After a
// panic, which continues with its stack, an error of the commit is logged.
//
// Changes of the Handler to obj outside of the status stay in memory. If it replaces obj by a later state (*obj =
// *response), the commit is based on that state. If the Handler succeeds and leaves obj deleted and without
// finalizers, the object is gone, and nothing is written.
//
// Put Status outside of Finalizer, so that the teardown can set the status, and inside of Log and Trace, so that they
// include the commit. Status panics if c is nil, if options.Timeout is negative, or if T has no status.
func Status[T kube.Object](c *client.Client, options StatusOptions[T]) controller.Middleware[T] {
	if c == nil {
		panic("middleware.Status: the client is nil: client.New makes one")
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		panic("middleware.Status: objects with only metadata have no status: retrieve whole objects")
	}
	if options.Timeout < 0 {
		panic(fmt.Sprintf("middleware.Status: Timeout is %s: it must be at least 0, which means %s", options.Timeout,
			defaultStatusTimeout))
	}
	options.Timeout = cmp.Or(options.Timeout, defaultStatusTimeout)
	apiobject.RequireOf[T](c.Cluster(), "status", "patch")
	apiobject.RequireOf[T](c.Cluster(), "", "get") // after a conflict
	return func(next controller.Handler[T]) controller.Handler[T] {
		return func(ctx context.Context, obj T) error {
			before, err := copyOf(obj)
			if err != nil {
				return err
			}
			run := &statusRun[T]{client: c, options: options, obj: obj, before: before, generation: obj.GetGeneration()}
			return run.handle(ctx, next)
		}
	}
}

// statusRun is one run of a Handler within Status. Only the goroutine of the Handler uses it.
type statusRun[T kube.Object] struct {
	client     *client.Client
	options    StatusOptions[T]
	obj        T
	before     T // obj at the start of the run, or at the last commit of its status
	generation int64
	// refused is the error of the last CommitStatus. After it, the commit at the end of the run must not write
	// either, because that one is not locked.
	refused error
}

// statusRunKey is the key of the *statusRun[T] in the Handler's context.
type statusRunKey[T kube.Object] struct{}

func (r *statusRun[T]) handle(ctx context.Context, next controller.Handler[T]) (err error) {
	err = errNoReturn
	defer func() {
		value := recover()
		if value == nil {
			err = r.end(ctx, usercode.Error(err))
			return
		}
		panicked := &usercode.HandlerPanicError{Value: value, Stack: debug.Stack()}
		//nolint:errorlint // identical: no error was added
		if failed := r.end(ctx, panicked); failed != error(panicked) {
			controller.LoggerFrom(ctx).WarnContext(ctx, "failed to commit the status after a panic", "error", failed)
		}
		// Panic again here, where the stack still contains the frames of the first panic.
		panic(value)
	}()
	return next(context.WithValue(ctx, statusRunKey[T]{}, r), r.obj)
}

// end sets the result of the Handler in the status, commits it, and returns the result of the run.
func (r *statusRun[T]) end(ctx context.Context, result error) error {
	failed := controller.OutcomeOf(result).Failed()
	switch {
	case r.refused != nil && !errors.Is(result, r.refused):
		return joined(result, r.refused)
	case r.refused != nil, !failed && isGone(r.obj):
		return result
	}
	noted := failed && r.options.OnError != nil && !interrupted(ctx, result)
	if noted {
		r.options.OnError(r.obj, result)
	}
	if r.options.SetObservedGeneration != nil && (!failed || noted) {
		r.options.SetObservedGeneration(r.obj, r.generation)
	}
	limited, cancel := withStatusTimeout(ctx, r.options.Timeout)
	defer cancel()
	if _, err := status.Commit(limited, r.client, r.before, r.obj, r.options.Commit...); err != nil {
		return joined(result, err)
	}
	return result
}

// joined returns the result of a run if its status was not committed because of err.
func joined(result, err error) error {
	if result == nil || controller.OutcomeOf(result) == controller.OutcomeRequeue {
		return err
	}
	return errors.Join(result, err)
}

// isGone reports whether an object that is being deleted has no finalizers and no grace period left, so that it does
// not exist anymore. Pods have a grace period.
func isGone(obj kube.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// interrupted reports whether the Handler has failed because its context was cancelled, as the controller will
// classify it. A timeout does not count.
func interrupted(ctx context.Context, result error) bool {
	return errors.Is(ctx.Err(), context.Canceled) && controller.OutcomeOf(result) == controller.OutcomeError
}

// CommitStatus commits the changes of the Handler to the status of obj during the run. It is for information that
// must be recorded before the Handler continues, such as the name of an object outside of the cluster that it will
// create. ctx and obj must be the arguments of a Handler within Status, which commits later changes at the end of the
// run. If nothing has changed, it makes no request.
//
// It writes only if the object has not changed since obj was read (see status.CommitLocked): an outdated copy must not
// overwrite later values. obj gets the new resourceVersion and keeps other changes of the Handler.
//
//	status.Set(&service.Status.Conditions, status.True("Named", service.Generation, "Named", "web-1.example.com"))
//	if err := middleware.CommitStatus(ctx, service); err != nil {
//		return err
//	}
//
// Errors: before any request, a ctx or an obj that is not the Handler's; client.ErrChanged, client.ErrGone, and the
// others of status.CommitLocked. The Handler must return the error: the run fails, its status is not committed at the
// end, and it is repeated.
func CommitStatus[T kube.Object](ctx context.Context, obj T) error {
	run, ok := ctx.Value(statusRunKey[T]{}).(*statusRun[T])
	if !ok {
		return fmt.Errorf("commit the status: this is not the context of a handler within middleware.Status[%s]",
			reflect.TypeFor[T]())
	}
	if any(obj) != any(run.obj) {
		return errors.New("commit the status: this is a copy of the handler's object, or another object: use the " +
			"handler's own")
	}
	changed, err := status.CommitLocked(ctx, run.client, run.before, obj, run.options.Commit...)
	if changed {
		run.before, err = copyOf(obj)
	}
	run.refused = err
	return err
}

func copyOf[T kube.Object](obj T) (T, error) {
	copied, ok := obj.DeepCopyObject().(T)
	if !ok {
		return copied, errors.New("commit the status: the copy of the object is of another type")
	}
	return copied, nil
}

// updateVersion records that the resourceVersion of obj has changed from version, without changes of other clients.
func updateVersion[T kube.Object](ctx context.Context, obj T, version string) {
	if run, ok := ctx.Value(statusRunKey[T]{}).(*statusRun[T]); ok && any(obj) == any(run.obj) &&
		run.before.GetResourceVersion() == version {
		run.before.SetResourceVersion(obj.GetResourceVersion())
	}
}

// withStatusTimeout returns a context that continues after ctx has ended, at most for timeout, and until leadership
// is lost.
func withStatusTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := kube.UntilLeadershipLost(ctx)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() { cancel(); end() }
}

// FailureConditions returns a StatusOptions.OnError that sets the conditions of a failed object: Stalled if retries
// are useless before a person changes something (controller.Terminal, errors with a method Persistent() bool such as
// *owned.ForeignError, objects that the API server rejects, and retry.NamespaceTerminating of the object's own
// namespace, which is not retried), otherwise Reconciling; see package status. The reason is the class of the error
// ("Conflict", "Forbidden", "Error": see package retry), or "Failed" for a persistent error of a class that is retried
// often. The message is the text of the error, without the mark of controller.Terminal. conditions returns the
// conditions of an object:
//
//	func conditionsOf(service *corev1.Service) *[]metav1.Condition { return &service.Status.Conditions }
//
// Example:
//
//	middleware.StatusOptions[*corev1.Service]{OnError: middleware.FailureConditions(conditionsOf)}
//
// Every different text is a write to the status, so equal errors should have equal texts.
func FailureConditions[T kube.Object](conditions func(obj T) *[]metav1.Condition) func(obj T, err error) {
	return func(obj T, err error) {
		reason, message := retry.Classify(err), usercode.Text(err)
		summarize := status.SetReconciling
		switch controller.OutcomeOf(err) {
		case controller.OutcomeTerminal:
			summarize, reason = status.SetStalled, retry.Terminal
			//nolint:errorlint // the reason contains what it adds to the text
			if terminal, ok := err.(*usercode.TerminalError); ok {
				message = usercode.Text(terminal.Err)
			}
		case controller.OutcomePanic:
			reason = retry.Panic
		default:
			// The controller does not retry in its object's own namespace.
			ending := reason == retry.NamespaceTerminating && usercode.TerminatingNamespace(err) == obj.GetNamespace()
			if ending || retryrules.Persistent(err) {
				summarize = status.SetStalled
				if !ending && reason != retry.Invalid {
					reason = reasonFailed // the class only determines the retries
				}
			}
		}
		summarize(conditions(obj), obj.GetGeneration(), capitalized(string(reason)), message)
	}
}

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
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

// reasonFailed is the reason of Stalled that status.Summarize sets too.
const reasonFailed = "Failed"

// defaultStatusTimeout is the default of StatusOptions.Timeout.
const defaultStatusTimeout = 5 * time.Second

// StatusOptions say what Status does. The zero value commits what the Handler has changed, and
// nothing else.
type StatusOptions[T kube.Object] struct {
	// SetObservedGeneration writes generation, of the object as the run found it, into the object's
	// status.observedGeneration, for kinds that have that field. It is called when the Handler has not
	// failed; when it has, only if OnError is called to say so in the status: otherwise tools would
	// take what an earlier run has said for an answer to the present generation. Default: nothing is
	// written.
	SetObservedGeneration func(obj T, generation int64)
	// OnError notes in the status that the Handler has failed: it returned err, which is no
	// RequeueAfter, or panicked: then err is a *controller.PanicError. The object is as the Handler
	// left it. It is not called for a run that was interrupted, because the process ends or has lost
	// its leadership: another one will do it. FailureConditions makes a usual one. Default: nothing is
	// noted.
	OnError func(obj T, err error)
	// Timeout is how long the commit may take. Default 5 s.
	Timeout time.Duration
	// Commit are options of the commit: client.FieldOwner, client.DryRun, client.FieldValidation.
	Commit []client.WriteOption
}

// Status commits what the wrapped Handler changes in the object's status: one patch at the end of
// the run, and none when nothing differs (see status.Commit, which says what is written). It does
// so also when the Handler returns an error or panics, and when the run's context has ended, but
// not after leadership is lost. CommitStatus does it in the middle.
//
// The Handler's answer stays as it is, RequeueAfter included, when the commit succeeds. When it
// fails, the run has failed: both errors are returned, and the reason of the commit's (a conflict,
// for one) can be found in it. After a panic, which goes on with its stack, an error of the commit
// is logged.
//
// What the Handler writes in obj outside of the status stays in memory. If it replaces obj by a
// later state (*obj = *answer), the commit builds on that state. If it leaves obj deleted and without
// finalizers, and has not failed, the object is gone, and nothing is written.
//
// Put it outside of Finalizer, so that the teardown can speak in the status, and inside of Log and
// Trace, so that they see the commit. Status panics when c is nil, when options.Timeout is negative,
// or when T cannot have a status.
func Status[T kube.Object](c *client.Client, options StatusOptions[T]) controller.Middleware[T] {
	if c == nil {
		panic("middleware.Status: the client is nil: client.New makes one")
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		panic("middleware.Status: objects that are metadata only have no status: retrieve whole ones")
	}
	if options.Timeout < 0 {
		panic(fmt.Sprintf("middleware.Status: Timeout is %s: it is at least 0, which means %s", options.Timeout, defaultStatusTimeout))
	}
	options.Timeout = cmp.Or(options.Timeout, defaultStatusTimeout)
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

// statusRun is one run under Status. It belongs to the goroutine of its Handler.
type statusRun[T kube.Object] struct {
	client     *client.Client
	options    StatusOptions[T]
	obj        T
	before     T // obj as the run found it, or as it was when its status was committed last
	generation int64
	// refused is why the last CommitStatus has failed: the commit at the end, which is not locked,
	// must not write after all what it was not to write.
	refused error
}

// statusRunKey is the key of the *statusRun[T] in a Handler's context.
type statusRunKey[T kube.Object] struct{}

func (r *statusRun[T]) handle(ctx context.Context, next controller.Handler[T]) (err error) {
	err = errNoReturn
	defer func() {
		value := recover()
		if value == nil {
			err = r.end(ctx, usercode.Error(err))
			return
		}
		panicked := &controller.PanicError{Value: value, Stack: debug.Stack()}
		if failed := r.end(ctx, panicked); failed != error(panicked) { //nolint:errorlint // the very value: nothing was added
			controller.LoggerFrom(ctx).WarnContext(ctx, "the handler panicked, and its status was not committed", "error", failed)
		}
		// From here, where the frames of the first panic are still on the stack for whoever
		// prints it.
		panic(value)
	}()
	return next(context.WithValue(ctx, statusRunKey[T]{}, r), r.obj)
}

// end says in the status what the answer means, writes the status, and returns the run's answer.
func (r *statusRun[T]) end(ctx context.Context, answer error) error {
	failed := answer != nil && !controller.IsRequeue(answer)
	switch {
	case r.refused != nil && !errors.Is(answer, r.refused):
		return joined(answer, r.refused)
	case r.refused != nil, !failed && isLetGo(r.obj):
		return answer
	}
	noted := failed && r.options.OnError != nil && !interrupted(ctx, answer)
	if noted {
		r.options.OnError(r.obj, answer)
	}
	if r.options.SetObservedGeneration != nil && (!failed || noted) {
		r.options.SetObservedGeneration(r.obj, r.generation)
	}
	limited, cancel := outliving(ctx, r.options.Timeout)
	defer cancel()
	if _, err := status.Commit(limited, r.client, r.before, r.obj, r.options.Commit...); err != nil {
		return joined(answer, err)
	}
	return answer
}

// joined returns the answer of a run whose status was not committed because of err.
func joined(answer, err error) error {
	if answer == nil || controller.IsRequeue(answer) {
		return err
	}
	return errors.Join(answer, err)
}

// isLetGo reports whether nothing holds an object that is being deleted. Only a grace period, which
// Pods have, goes on without finalizers.
func isLetGo(obj kube.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// interrupted reports whether a run has failed because its work was cancelled, as the controller
// will see it. A time limit is the run's own.
func interrupted(ctx context.Context, answer error) bool {
	return errors.Is(ctx.Err(), context.Canceled) && controller.OutcomeOf(answer) == controller.OutcomeError
}

// CommitStatus writes, in the middle of a run, what the Handler has changed in obj's status so far.
// It is for what has to be noted before the Handler goes on: the name of something outside of the
// cluster that it is about to make, for one. ctx and obj are the Handler's own, with Status around
// it; Status commits the rest at the end of the run. When nothing has changed there is no request.
//
// It writes only if the object has not been written to since obj was read (see
// status.CommitLocked): a copy that is old must not make forgotten what it does not know of. obj gets
// the resourceVersion that the object has then; what else the Handler has changed in it stays.
//
//	status.Set(&service.Status.Conditions, status.True("Named", service.Generation, "Named", "web-1.example.com"))
//	if err := middleware.CommitStatus(ctx, service); err != nil {
//		return err
//	}
//
// Errors: a context or an obj that is not the Handler's, before any request; client.ErrChanged,
// client.ErrGone, and the others of status.CommitLocked. The Handler has to return with it: the run
// fails then, nothing of its status is written at the end, and it will be done again.
func CommitStatus[T kube.Object](ctx context.Context, obj T) error {
	run, ok := ctx.Value(statusRunKey[T]{}).(*statusRun[T])
	if !ok {
		return fmt.Errorf("commit the status: there is no middleware.Status[%s] around the handler that has this context", reflect.TypeFor[T]())
	}
	if any(obj) != any(run.obj) {
		return errors.New("commit the status: this is a copy of the handler's object, or another one: what is around the handler would not see it")
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

// moveVersion tells Status that the resourceVersion of obj has moved, from version, and nothing in it
// that others have written.
func moveVersion[T kube.Object](ctx context.Context, obj T, version string) {
	if run, ok := ctx.Value(statusRunKey[T]{}).(*statusRun[T]); ok && any(obj) == any(run.obj) && run.before.GetResourceVersion() == version {
		run.before.SetResourceVersion(obj.GetResourceVersion())
	}
}

// outliving returns a context that goes on after ctx has ended, for timeout at most, and until
// leadership is lost.
func outliving(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := kube.UntilLeadershipLost(ctx)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() { cancel(); end() }
}

// FailureConditions makes a StatusOptions.OnError that says in the conditions of an object that
// its Handler has failed: Stalled, when trying again is useless until somebody changes something
// (controller.Terminal, and what retry.Persistent reports, such as an *owned.ForeignError and what
// the API server does not accept), otherwise Reconciling; see package status. The reason is the
// class of the error ("Conflict", "Forbidden", "Error": see package retry), or "Failed" for a
// persistent error of a class that is retried often. The message is the error's text, without the
// mark of controller.Terminal. The conditions are those that a function of the caller's finds:
//
//	func conditionsOf(service *corev1.Service) *[]metav1.Condition { return &service.Status.Conditions }
//
// And with it:
//
//	middleware.StatusOptions[*corev1.Service]{OnError: middleware.FailureConditions(conditionsOf)}
//
// Each other text is another write to the status: errors that say the same should read the same.
func FailureConditions[T kube.Object](conditions func(obj T) *[]metav1.Condition) func(obj T, err error) {
	return func(obj T, err error) {
		reason, message := retry.Classify(err), usercode.Text(err)
		summarize := status.SetReconciling
		switch controller.OutcomeOf(err) {
		case controller.OutcomeTerminal:
			summarize, reason = status.SetStalled, retry.Terminal
			if terminal, ok := err.(*controller.TerminalError); ok { //nolint:errorlint // the reason says already what it adds to the text
				message = usercode.Text(terminal.Err)
			}
		case controller.OutcomePanic:
			reason = retry.Panic
		default:
			if retry.Persistent(err) {
				summarize = status.SetStalled
				if reason != retry.Invalid {
					reason = reasonFailed // the class only says how often it is retried
				}
			}
		}
		summarize(conditions(obj), obj.GetGeneration(), capitalized(string(reason)), message)
	}
}

package middleware

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"runtime/debug"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

// DefaultStatusTimeout is the default of StatusOptions.Timeout.
const DefaultStatusTimeout = 5 * time.Second

// StatusOptions say what Status does. The zero value commits what the Handler has changed, and
// nothing else.
type StatusOptions[T kube.Object] struct {
	// SetObservedGeneration writes generation into the object's status.observedGeneration, for
	// kinds that have that field. It is called when the Handler has not failed; when it has, only if
	// OnError is there to say so in the status: otherwise tools would take what an earlier run has
	// said for an answer to the present generation. Default: nothing is written.
	SetObservedGeneration func(obj T, generation int64)
	// OnError notes in the status that the Handler has failed: it returned err, which is no
	// RequeueAfter, or panicked: then err is a *controller.PanicError. The object is as the Handler
	// left it. FailureConditions makes a usual one. Default: nothing is noted.
	OnError func(obj T, err error)
	// Timeout is how long the commit may take. Default 5 s.
	Timeout time.Duration
	// Commit are options of the commit: client.FieldOwner, client.DryRun, client.FieldValidation.
	Commit []client.Option
}

// Status commits what the wrapped Handler changes in the object's status: one patch at the end of
// the run, and none when nothing differs (see status.Commit, which says what is written). It does
// so also when the Handler returns an error or panics, and when the run's context has ended, but
// not after leadership is lost.
//
// The Handler's answer stays as it is, RequeueAfter included, when the commit succeeds. When it
// fails, the run has failed: both errors are returned, and the reason of the commit's (a conflict,
// for one) can be found in it. After a panic, which goes on with its stack, an error of the commit
// is logged.
//
// What the Handler writes in obj outside of the status stays in memory. If it replaces obj by a
// later state (*obj = *answer), the commit builds on that state.
//
// Put it outside of Finalizer, so that the teardown can speak in the status, and inside of Log and
// Trace, so that they see the commit. Status panics when c is nil, or when T cannot have a status.
func Status[T kube.Object](c *client.Client, options StatusOptions[T]) controller.Middleware[T] {
	if c == nil {
		panic("middleware.Status: the client is nil: client.New makes one")
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		panic("middleware.Status: objects that are metadata only have no status: retrieve whole ones")
	}
	options.Timeout = cmp.Or(options.Timeout, DefaultStatusTimeout)
	return func(next controller.Handler[T]) controller.Handler[T] {
		return controller.HandlerFunc[T](func(ctx context.Context, obj T) error {
			return options.run(ctx, c, next, obj)
		})
	}
}

func (o StatusOptions[T]) run(ctx context.Context, c *client.Client, next controller.Handler[T], obj T) (err error) {
	before, ok := obj.DeepCopyObject().(T)
	if !ok {
		return errors.New("commit the status: the copy of the object is of another type")
	}
	err = errNoReturn
	defer func() {
		value := recover()
		if value == nil {
			err = o.commit(ctx, c, before, obj, err)
			return
		}
		panicked := &controller.PanicError{Value: value, Stack: debug.Stack()}
		if failed := o.commit(ctx, c, before, obj, panicked); failed != error(panicked) { //nolint:errorlint // the very value: nothing was added
			controller.LoggerFrom(ctx).WarnContext(ctx, "the handler panicked, and its status was not committed", "error", failed)
		}
		// From here, where the frames of the first panic are still on the stack for whoever
		// prints it.
		panic(value)
	}()
	return next.Handle(ctx, obj)
}

// commit says in the status what the answer means, writes the status, and returns the run's answer.
func (o StatusOptions[T]) commit(ctx context.Context, c *client.Client, before, after T, answer error) error {
	failed := answer != nil && !controller.IsRequeue(answer)
	if failed && o.OnError != nil {
		o.OnError(after, answer)
	}
	if o.SetObservedGeneration != nil && (!failed || o.OnError != nil) {
		o.SetObservedGeneration(after, after.GetGeneration())
	}
	limited, cancel := outliving(ctx, o.Timeout)
	defer cancel()
	_, err := status.Commit(limited, c, before, after, o.Commit...)
	switch {
	case err == nil:
		return answer
	case failed:
		return errors.Join(answer, err)
	}
	return err
}

// outliving returns a context that goes on after ctx has ended, for timeout at most. Only a loss of
// leadership ends it; one that comes after the end of ctx is noticed when something is written.
func outliving(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	endIfLost := func() {
		if errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
			cancel()
		}
	}
	endIfLost() // AfterFunc would begin a goroutine for it, which may come late
	stop := context.AfterFunc(ctx, endIfLost)
	return limited, func() { stop(); cancel() }
}

// FailureConditions makes a StatusOptions.OnError that says in the conditions of an object that
// its Handler has failed: Stalled, when trying again is useless (controller.Terminal), otherwise
// Reconciling; see package status. The reason is the class of the error ("Conflict", "Forbidden",
// "Error": see package retry), and the message is the error's text.
//
//	OnError: middleware.FailureConditions(func(shop *v1.Shop) *[]metav1.Condition { return &shop.Status.Conditions })
//
// Each other text is another write to the status: errors that say the same should read the same.
func FailureConditions[T kube.Object](conditions func(obj T) *[]metav1.Condition) func(obj T, err error) {
	return func(obj T, err error) {
		reason := retry.Classify(err)
		summarize := status.Reconciling
		switch controller.OutcomeOf(err) {
		case controller.OutcomeTerminal:
			summarize, reason = status.Stalled, retry.Terminal
		case controller.OutcomePanic:
			reason = retry.Panic
		default:
		}
		summarize(conditions(obj), obj.GetGeneration(), capitalized(string(reason)), err.Error())
	}
}

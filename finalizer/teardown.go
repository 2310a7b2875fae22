package finalizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// persistTimeout is how long a finished step is being noted, also after the run's context has
// ended.
const persistTimeout = 5 * time.Second

// Step is one thing that the teardown does.
type Step[T kube.Object] struct {
	// Name tells it apart from the others, and is what is kept in the object. It must stay the
	// same over versions of the program: letters, digits, "-", "_" and ".". Required.
	Name string
	// Run does it. It must be safe to repeat, and nil must mean that it is done: what was to be
	// removed is not there. Required.
	//
	// What it returns otherwise is the answer of the run: an error, or controller.RequeueAfter to
	// look again later. The step begins anew then.
	Run func(ctx context.Context, obj T) error
}

// Config says what a Finalizer does. It is taken by value: New neither keeps nor changes the
// caller's.
type Config[T kube.Object] struct {
	// Client writes to the objects. Required.
	Client *client.Client
	// Name is the finalizer's entry in the objects: a domain of yours and a name in it of at most
	// 58 characters, "shop.example.com/cleanup". Required.
	//
	// While objects have it, it must not be changed: nobody would remove the old one.
	Name string
	// Steps are the teardown, in this order. At least one is required.
	//
	// They may be changed while objects are being deleted: what is noted as done is not done again,
	// what is new is done.
	Steps []Step[T]
}

// Finalizer adds an entry to objects, and tears down what they stand for before it removes the
// entry. It is safe for concurrent use, for different objects.
//
// # Flow
//
//  1. Ensure adds the entry to a live object, before the first outside effect.
//  2. The object is deleted; the entry keeps it.
//  3. Teardown runs the steps that are not yet noted as done, one after the other. Each one that
//     is done is noted in the object (an annotation named as the finalizer, with "-done", and with
//     the object's uid: a copy of it on another object counts for nothing), in a patch of its own.
//  4. The patch after the last step removes the entry and the annotation at once.
//
// # Guarantees
//
//   - A step begins only after those before it have returned nil, and that was kept.
//   - After a crash, or an error, the teardown goes on where it was: at the first step that is not
//     noted as done.
//   - A step runs at least once, not exactly once: a crash may come between its effect and the
//     note. That is why steps must be safe to repeat.
//   - No step runs for a stale cache: the object is read from the API server first, one request for
//     each run of an unfinished teardown, and the steps see what was read. What is gone, or was
//     replaced by another one of its name, is left alone.
//   - Other finalizers of the object are never touched.
type Finalizer[T kube.Object] struct {
	config Config[T] // immutable after New
}

// New makes a Finalizer. It makes no request. The error names every mistake in config.
func New[T kube.Object](config Config[T]) (*Finalizer[T], error) {
	config.Steps = slices.Clone(config.Steps)
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("make the finalizer %q: %w", config.Name, err)
	}
	return &Finalizer[T]{config}, nil
}

func (c Config[T]) validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("Client is required: client.New makes one"))
	}
	if err := checkName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("Name: %w", err))
	} else if problems := validation.IsQualifiedName(c.annotation()); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("Name: with %q behind it, it names an annotation, and is too long for that: %s", doneSuffix, strings.Join(problems, "; ")))
	}
	if len(c.Steps) == 0 {
		errs = append(errs, errors.New("no Steps: what has nothing to tear down needs no finalizer"))
	}
	for i, step := range c.Steps {
		if strings.Contains(step.Name, "/") || len(validation.IsQualifiedName(step.Name)) > 0 {
			errs = append(errs, fmt.Errorf("Steps[%d].Name is %q: up to 63 letters, digits, \"-\", \"_\" and \".\" are wanted", i, step.Name))
		}
		if slices.ContainsFunc(c.Steps[:i], func(other Step[T]) bool { return other.Name == step.Name }) {
			errs = append(errs, fmt.Errorf("Steps[%d].Name is %q, as of a step before it: it would count as done with that one", i, step.Name))
		}
		if step.Run == nil {
			errs = append(errs, fmt.Errorf("Steps[%d].Run is required", i))
		}
	}
	return errors.Join(errs...)
}

// doneSuffix makes the annotation's name of the finalizer's.
const doneSuffix = "-done"

func (c Config[T]) annotation() string { return c.Name + doneSuffix }

// Name returns the finalizer's name.
func (f *Finalizer[T]) Name() string { return f.config.Name }

// Client returns the client that writes to the objects.
func (f *Finalizer[T]) Client() *client.Client { return f.config.Client }

// Ensure adds the entry: see Add.
func (f *Finalizer[T]) Ensure(ctx context.Context, obj T) (changed bool, err error) {
	return Add(ctx, f.config.Client, obj, f.config.Name)
}

// Teardown runs the steps that are not yet done, for an obj that is being deleted, and then removes
// the entry. It does nothing when obj does not have the entry. After it, obj has the finalizers
// that are left; none when the object is gone.
//
// An obj that is behind becomes the live object first (*obj = *live), so that the steps see all that
// was noted in it; one that is not stays as the caller has changed it.
//
// Errors: an obj that is not being deleted; what a step returned, with its name (controller's
// answers are kept: they look into errors); what a request met. After any of them the next
// Teardown goes on.
func (f *Finalizer[T]) Teardown(ctx context.Context, obj T) error {
	if err := check(f.config.Client, obj, f.config.Name); err != nil {
		return fmt.Errorf("teardown %q: %w", f.config.Name, err)
	}
	if !Has(obj, f.config.Name) {
		return nil
	}
	if obj.GetDeletionTimestamp() == nil {
		return fmt.Errorf("teardown %q: %s is not being deleted", f.config.Name, kube.KeyOf(obj))
	}
	err := f.teardown(ctx, obj)
	var ofStep *stepError
	if isGone(err) && !errors.As(err, &ofStep) {
		obj.SetFinalizers(nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("teardown %q of %s: %w", f.config.Name, kube.KeyOf(obj), err)
	}
	return nil
}

func (f *Finalizer[T]) teardown(ctx context.Context, obj T) error {
	live, err := client.Live(ctx, f.config.Client, obj)
	if err != nil {
		return err
	}
	if obj.GetResourceVersion() == live.GetResourceVersion() {
		takeOver(obj, obj, live, f.config.annotation())
	} else if err := become(obj, live); err != nil {
		return err
	}
	if !Has(obj, f.config.Name) {
		return nil
	}
	last := live
	done := f.done(obj)
	left := f.left(done)
	for i, step := range left {
		if ctx.Err() != nil {
			return fmt.Errorf("before step %q: %w", step.Name, context.Cause(ctx))
		}
		if err := usercode.Error(step.Run(ctx, obj)); err != nil {
			return &stepError{step: step.Name, err: err}
		}
		done = append(done, step.Name)
		if i == len(left)-1 {
			break // noted together with the removal
		}
		if last, err = f.note(ctx, obj, last, done); err != nil {
			return fmt.Errorf("note that step %q is done: %w", step.Name, err)
		}
	}
	ctx, cancel := outliving(ctx)
	defer cancel()
	if _, err := (edit{name: f.config.Name, annotation: f.config.annotation()}).do(ctx, f.config.Client, obj, last, nil); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// become makes obj the state of the object that live is. They share nothing: what steps do to obj
// must not be taken for the cluster's.
func become[T kube.Object](obj, live T) error {
	copied := live.DeepCopyObject()
	from, to := reflect.ValueOf(copied), reflect.ValueOf(obj)
	if to.Kind() != reflect.Pointer || from.Type() != to.Type() {
		return fmt.Errorf("the live object is a %T and the one to be torn down a %T: a pointer to a struct is wanted", copied, obj)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// done returns the names of the steps that obj says are done, for itself: annotations are copied, by
// whoever creates an object anew from what there was of it, and its teardown is another one.
func (f *Finalizer[T]) done(obj T) []string {
	noted, ofThis := strings.CutPrefix(obj.GetAnnotations()[f.config.annotation()], string(obj.GetUID())+":")
	if !ofThis {
		return nil
	}
	return strings.FieldsFunc(noted, func(r rune) bool { return r == ',' || r == ' ' })
}

// left returns the steps that are not done.
func (f *Finalizer[T]) left(done []string) []Step[T] {
	return slices.DeleteFunc(slices.Clone(f.config.Steps), func(step Step[T]) bool { return slices.Contains(done, step.Name) })
}

// note keeps in the object, whose last known state is last, which steps are done. It returns the
// state that it has then.
func (f *Finalizer[T]) note(ctx context.Context, obj, last T, done []string) (T, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         obj.GetUID(),
		"annotations": map[string]string{f.config.annotation(): string(obj.GetUID()) + ":" + strings.Join(done, ",")},
	}})
	if err != nil {
		return last, err
	}
	ctx, cancel := outliving(ctx)
	defer cancel()
	answer, err := client.Patch(ctx, f.config.Client, last, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		// The uid is another one, if it is that: another object has got the name.
		if _, gone := client.Live(ctx, f.config.Client, last); isGone(gone) {
			return last, gone
		}
	}
	if err != nil {
		return last, err
	}
	takeOver(obj, last, answer, f.config.annotation())
	return answer, nil
}

// outliving returns a context for noting what was done: it would be done again for nothing. It ends
// when leadership is lost.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := kube.UntilLeadershipLost(ctx)
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	return ctx, func() { cancel(); end() }
}

// stepError names the step that returned err. It tells a step's errors from ours: a step that says
// client.ErrGone speaks of another object.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("step %q: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

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
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// persistTimeout is the time limit for recording a finished step, also after the run's context has ended.
const persistTimeout = 5 * time.Second

// Step is one step of the teardown.
type Step[T kube.Object] struct {
	// Name identifies the step and is stored in the object. It must not change between versions of the program. It
	// consists of letters, digits, "-", "_" and ".". Required.
	Name string
	// Run executes the step. It must be safe to repeat. nil means that the step is done: the external thing does not
	// exist anymore. Required.
	//
	// Any other return value is the result of the run: an error, or controller.RequeueAfter to check again later. The
	// next run executes the step again.
	Run func(ctx context.Context, obj T) error
}

// Config configures a Finalizer. New does not keep or change the caller's copy.
type Config[T kube.Object] struct {
	// Client writes to the objects. Required.
	Client *client.Client
	// Name is the finalizer's entry in the objects: a domain of your own and a name of at most 58 characters,
	// "shop.example.com/cleanup". Required.
	//
	// It must not change while objects have it: the program would never remove the old one.
	Name string
	// Steps are the steps of the teardown, in this order. At least one is required.
	//
	// They may change while objects are being deleted: steps that are recorded as done are not repeated, new ones are
	// executed.
	Steps []Step[T]
}

// Finalizer adds an entry to objects, and runs the teardown of a deleted object before it removes the entry. It is
// safe for concurrent use with different objects.
//
// # Steps
//
//  1. Ensure adds the entry to a live object, before the first external effect.
//  2. The object is deleted; the entry keeps it.
//  3. Teardown executes the steps that are not recorded as done, one after the other. After each step it records the
//     step in the object with a patch (an annotation with the name of the finalizer and "-done", and with the object's
//     uid, so that copies to other objects do not count).
//  4. The patch after the last step removes the entry and the annotation.
//
// # Guarantees
//
//   - A step begins only when all steps before it have returned nil and are recorded.
//   - After a crash or an error, the teardown continues with the first step that is not recorded.
//   - A step is executed at least once, not exactly once: the process may crash between its effect and the record. So
//     steps must be safe to repeat.
//   - No step runs because of an outdated cache: Teardown first reads the object from the API server, one request for
//     each run of an unfinished teardown, and the steps receive that state. It ignores an object that is gone or was
//     replaced by another one of its name.
//   - Other finalizers of the object are never changed.
type Finalizer[T kube.Object] struct {
	config Config[T] // immutable after New
}

// New returns a Finalizer. It makes no request. The error lists all mistakes in config.
func New[T kube.Object](config Config[T]) (*Finalizer[T], error) {
	config.Steps = slices.Clone(config.Steps)
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("new finalizer %q: %w", config.Name, err)
	}
	apiobject.RequireOf[T](config.Client.Cluster(), "", "get", "patch")
	return &Finalizer[T]{config}, nil
}

func (c Config[T]) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Client == nil, "Client is required: client.New makes one")
	if err := checkName(c.Name); err != nil {
		mistakes.Addf("Name: %w", err)
	} else if problems := validation.IsQualifiedName(c.annotation()); len(problems) > 0 {
		mistakes.Addf("Name: with the suffix %q it must be a valid name of an annotation: %s", doneSuffix,
			strings.Join(problems, "; "))
	}
	mistakes.AddIf(len(c.Steps) == 0, "at least one of Steps is required")
	for i, step := range c.Steps {
		mistakes.AddIf(strings.Contains(step.Name, "/") || len(validation.IsQualifiedName(step.Name)) > 0,
			"Steps[%d].Name is %q: it must have 1 to 63 letters, digits, \"-\", \"_\" and \".\"", i, step.Name)
		if slices.ContainsFunc(c.Steps[:i], func(other Step[T]) bool { return other.Name == step.Name }) {
			mistakes.Addf("Steps[%d].Name is %q like that of an earlier step: names must be unique", i, step.Name)
		}
		mistakes.AddIf(step.Run == nil, "Steps[%d].Run is required", i)
	}
	return mistakes.Err()
}

// doneSuffix is appended to the name of the finalizer to get that of the annotation.
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

// Teardown executes the steps that are not done, for an obj that is being deleted, and then removes the entry. It
// does nothing if obj does not have the entry. After it, obj has the remaining finalizers; none if the object is
// gone.
//
// If obj is outdated, Teardown first sets it to the live object (*obj = *live), so that the steps see everything that
// is stored in it. Otherwise it keeps the caller's changes.
//
// Errors: an obj that is not being deleted; the result of a step, with its name (wrapped, so controller.RequeueAfter
// and Terminal keep their meaning); errors of requests. The next Teardown continues after any of them.
func (f *Finalizer[T]) Teardown(ctx context.Context, obj T) error {
	if err := check(f.config.Client, obj, f.config.Name); err != nil {
		return fmt.Errorf("teardown %q: %w", f.config.Name, err)
	}
	if !has(obj, f.config.Name) {
		return nil
	}
	if obj.GetDeletionTimestamp() == nil {
		return fmt.Errorf("teardown %q: %s is not being deleted", f.config.Name, kube.KeyOf(obj))
	}
	err := f.teardown(ctx, obj)
	var stepErr *stepError
	if isGone(err) && !errors.As(err, &stepErr) {
		obj.SetFinalizers(nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("teardown %q of %s: %w", f.config.Name, kube.KeyOf(obj), err)
	}
	return nil
}

func (f *Finalizer[T]) teardown(ctx context.Context, obj T) error {
	live, err := client.GetLive(ctx, f.config.Client, obj)
	if err != nil {
		return err
	}
	if obj.GetResourceVersion() == live.GetResourceVersion() {
		takeOver(obj, obj, live, f.config.annotation())
	} else if err := assign(obj, live); err != nil {
		return err
	}
	if !has(obj, f.config.Name) {
		return nil
	}
	last := live
	done := f.done(obj)
	remaining := f.remaining(done)
	for i, step := range remaining {
		if ctx.Err() != nil {
			return fmt.Errorf("before step %q: %w", step.Name, context.Cause(ctx))
		}
		if err := usercode.Error(step.Run(ctx, obj)); err != nil {
			return &stepError{step: step.Name, err: err}
		}
		done = append(done, step.Name)
		if i == len(remaining)-1 {
			break // the patch that removes the entry removes the annotation too
		}
		if last, err = f.record(ctx, obj, last, done); err != nil {
			return fmt.Errorf("record that step %q is done: %w", step.Name, err)
		}
	}
	ctx, cancel := withPersistTimeout(ctx)
	defer cancel()
	if _, err := (edit{name: f.config.Name, annotation: f.config.annotation()}).do(ctx, f.config.Client, obj, last,
		nil); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// assign sets obj to live. They share no memory: changes of steps in obj must not appear in live.
func assign[T kube.Object](obj, live T) error {
	copied := live.DeepCopyObject()
	from, to := reflect.ValueOf(copied), reflect.ValueOf(obj)
	if to.Kind() != reflect.Pointer || from.Type() != to.Type() {
		return fmt.Errorf("the live object is a %T, but the object of the teardown is a %T: both must be pointers to "+
			"the same struct type", copied, obj)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// done returns the steps that obj records as done for its own uid. An object that is created from a copy of another one
// may have its annotation; the uid shows that it does not count.
func (f *Finalizer[T]) done(obj T) []string {
	recorded, found := strings.CutPrefix(obj.GetAnnotations()[f.config.annotation()], string(obj.GetUID())+":")
	if !found {
		return nil
	}
	return strings.FieldsFunc(recorded, func(r rune) bool { return r == ',' || r == ' ' })
}

// remaining returns the steps that are not done.
func (f *Finalizer[T]) remaining(done []string) []Step[T] {
	return slices.DeleteFunc(slices.Clone(f.config.Steps), func(step Step[T]) bool {
		return slices.Contains(done, step.Name)
	})
}

// record stores the done steps in the object with the last known state last. It returns the new state.
func (f *Finalizer[T]) record(ctx context.Context, obj, last T, done []string) (T, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         obj.GetUID(),
		"annotations": map[string]string{f.config.annotation(): string(obj.GetUID()) + ":" + strings.Join(done, ",")},
	}})
	if err != nil {
		return last, err
	}
	ctx, cancel := withPersistTimeout(ctx)
	defer cancel()
	patched, err := client.Patch(ctx, f.config.Client, last, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		// A rejected uid means that another object has the name now.
		if _, gone := client.GetLive(ctx, f.config.Client, last); isGone(gone) {
			return last, gone
		}
	}
	if err != nil {
		return last, err
	}
	takeOver(obj, last, patched, f.config.annotation())
	return patched, nil
}

// withPersistTimeout returns a context for recording finished steps, which also works after ctx has ended, so that
// they are not repeated. It ends when leadership is lost.
func withPersistTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := kube.UntilLeadershipLost(ctx)
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	return ctx, func() { cancel(); end() }
}

// stepError is the error of a step. It distinguishes errors of steps from those of this package: client.ErrGone from
// a step means another object.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("step %q: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// WriteResult is the result of CreateOrUpdate or CreateOrPatch.
type WriteResult[T any] struct {
	// Object is the object as the API server has it; if it is Unchanged, the object that was read.
	Object T
	// Outcome is Created, Updated or Unchanged. It is empty if an error leaves it unknown.
	Outcome ObjectOutcome
	// Changed are the changed fields of an Updated object, including the status.
	Changed []FieldChange
	// StatusUpdated is true if the status was written by a separate request. If nothing else was written, all
	// Changed are in the status.
	StatusUpdated bool
}

// writeTries is the number of attempts of a write that conflicts with other writes.
const writeTries = 3

// CreateOrUpdate calls mutate to make the desired object, and writes it if mutate has changed anything. It is for
// programs that were written for other libraries, and for kinds without server-side apply. Prefer Apply: it
// declares the desired fields, and leaves all others alone.
//
//	written, err := client.CreateOrUpdate(ctx, c, config, func(config *corev1.ConfigMap) error {
//		config.Data = map[string]string{"mode": "fast"}
//		return nil
//	})
//
// Flow:
//
//  1. The object is read by the name of obj, from an informer or the API server. mutate gets a copy of it or, if it
//     does not exist, a copy of obj.
//  2. If mutate has changed nothing, no request is made. Empty and missing fields of Go types are equal.
//  3. Otherwise the object is created, or updated if it has not changed since it was read.
//  4. If it has changed, was created or was deleted, it is read from the API server, and mutate is called again, up
//     to 3 times in total. So mutate must be safe to repeat. The same happens before an update of an object from
//     an informer with another Go type, which may lack fields.
//
// CreateOrUpdate does not change obj; the result is WriteResult.Object. mutate must not change the namespace,
// the name and the uid. It should set single fields: a struct or list that it replaces (Spec.Template.Spec =
// corev1.PodSpec{...}) loses the defaults of the API server, so it differs, and is sent, in every run. The
// outcome is then Unchanged, because the API server sets the defaults again; a controller's Explain shows an
// update with "no change". The same happens with values that the API server normalizes ("1000m" to "1", in
// unstructured objects). Apply has neither problem.
//
// If the status is a subresource, CreateOrUpdate neither compares nor writes it: CreateOrPatch does both.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: the error of mutate; ErrChanged after three conflicts. Metadata-only objects are rejected, because an
// update would remove the rest of the object.
func CreateOrUpdate[T kube.Object](
	ctx context.Context, c *Client, obj T, mutate func(obj T) error, options ...WriteOption,
) (WriteResult[T], error) {
	if _, metadata := any(obj).(*metav1.PartialObjectMetadata); metadata {
		return WriteResult[T]{}, fmt.Errorf("create or update %s: it has metadata only, and an update would remove "+
			"the rest: CreateOrPatch and Apply change metadata",
			keyOf(obj))
	}
	return createOr(ctx, c, "create or update", obj, mutate, update[T], options)
}

// CreateOrPatch is CreateOrUpdate with a merge patch of the changes of mutate: it keeps fields that T lacks. If
// the status is a subresource, a separate request patches it; a new object gets the status that mutate or obj
// sets.
//
// The patch requires that the object has not changed since it was read, because a merge patch replaces lists
// completely.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of CreateOrUpdate. If writing the status fails, the object stays written, as WriteResult reports.
func CreateOrPatch[T kube.Object](
	ctx context.Context, c *Client, obj T, mutate func(obj T) error, options ...WriteOption,
) (WriteResult[T], error) {
	return createOr(ctx, c, "create or patch", obj, mutate, patchBoth[T], options)
}

// keyOf is like kube.KeyOf, but accepts a nil object.
func keyOf(obj kube.Object) kube.Key {
	if usercode.IsNil(obj) {
		return kube.Key{}
	}
	return kube.KeyOf(obj)
}

// change is one attempt to write: the object before, if it exists, and the wanted object.
type change[T kube.Object] struct {
	target
	before  T
	exists  bool
	partial bool // before lacks fields that T may have
	wanted  T
}

// errPartial means that an update would remove fields that the informer's Go type lacks.
var errPartial = errors.New("the informer shows a part of it only")

func createOr[T kube.Object](
	ctx context.Context, c *Client, action string, obj T, mutate func(T) error,
	write func(context.Context, change[T]) (WriteResult[T], error), options []WriteOption,
) (WriteResult[T], error) {
	t, err := begin(ctx, c, action, obj, options, optionsOfWrite)
	if err != nil {
		return WriteResult[T]{}, err
	}
	var done WriteResult[T] // result of attempts that wrote the object but not its status
	for try := 1; ; try++ {
		find := currentState[T]
		if try > 1 {
			find = readState[T] // the informer was stale
		}
		written, retryable, err := tryOnce(ctx, t, obj, mutate, find, write)
		if written.Outcome == "" {
			written.Object = done.Object
		}
		written = written.after(done)
		if err == nil || !retryable || try == writeTries {
			return written, t.failed(err)
		}
		done = written
	}
}

// after returns the combined result of an earlier attempt and w.
func (w WriteResult[T]) after(earlier WriteResult[T]) WriteResult[T] {
	switch earlier.Outcome {
	case Created:
		w.Outcome, w.Changed = Created, nil
	case Updated:
		if w.Outcome != Created {
			w.Outcome, w.Changed = Updated, slices.Concat(earlier.Changed, w.Changed)
		}
	}
	return w
}

// tryOnce reads, mutates and writes. retryable reports whether the write failed because the object has changed
// since it was read.
func tryOnce[T kube.Object](
	ctx context.Context, t target, obj T, mutate func(T) error,
	find func(context.Context, target, T) (state[T], error),
	write func(context.Context, change[T]) (WriteResult[T], error),
) (written WriteResult[T], retryable bool, err error) {
	seen, err := find(ctx, t, obj)
	if err != nil {
		return written, false, err
	}
	base := seen.object
	if _, metadata := any(obj).(*metav1.PartialObjectMetadata); metadata && !seen.exists {
		return written, false, fmt.Errorf("%w: it cannot be created of metadata only", t.gone())
	}
	if !seen.exists {
		if base, err = copyOf(obj); err != nil {
			return written, false, err
		}
		base.SetNamespace(t.key.Namespace)
		base.SetResourceVersion("")
	}
	wanted := base.DeepCopyObject().(T)
	if mutate != nil {
		if err := mutate(wanted); err != nil {
			return written, false, fmt.Errorf("mutate: %w", err)
		}
	}
	if kube.KeyOf(wanted) != t.key || wanted.GetUID() != base.GetUID() {
		return written, false, fmt.Errorf("mutate has changed the namespace, name or uid to %s with uid %q: "+
			"it must only change other fields of the object", kube.KeyOf(wanted), wanted.GetUID())
	}
	wanted.SetResourceVersion(base.GetResourceVersion())
	if !seen.exists {
		wanted.SetUID("")
	}
	written, err = write(ctx, change[T]{
		target: t, before: base, exists: seen.exists, partial: seen.partial, wanted: wanted,
	})
	retryable = errors.Is(err, ErrChanged) || errors.Is(err, errPartial) || errors.Is(err, ErrGone) && seen.exists ||
		apierrors.IsAlreadyExists(err) && !seen.exists
	return written, retryable, err
}

// copyOf returns a copy of obj. DeepCopy of unstructured objects panics for ints, which hand-written objects contain.
func copyOf[T kube.Object](obj T) (T, error) {
	u, ok := any(obj).(*unstructured.Unstructured)
	if !ok {
		return obj.DeepCopyObject().(T), nil
	}
	content, err := contentOf(u)
	return any(&unstructured.Unstructured{Object: content}).(T), err
}

// update writes the whole object.
func update[T kube.Object](ctx context.Context, ch change[T]) (WriteResult[T], error) {
	if !ch.exists {
		return create(ctx, ch)
	}
	from, to, apart, err := ch.contents(ctx)
	if err != nil {
		return WriteResult[T]{}, err
	}
	if apart {
		delete(from, "status")
		delete(to, "status")
	}
	if difference.Equal(from, to) {
		return WriteResult[T]{Object: ch.before, Outcome: Unchanged}, nil
	}
	if ch.partial {
		return WriteResult[T]{}, errPartial
	}
	response, err := ch.send(ctx, VerbUpdate)
	if err != nil {
		return WriteResult[T]{}, asChanged(err)
	}
	return ch.written(response), nil
}

func create[T kube.Object](ctx context.Context, ch change[T]) (WriteResult[T], error) {
	response, err := ch.send(ctx, VerbCreate)
	if err != nil {
		return WriteResult[T]{}, err
	}
	return WriteResult[T]{Object: response, Outcome: Created}, nil
}

// send writes the whole wanted object.
func (ch change[T]) send(ctx context.Context, verb Verb) (T, error) {
	r := ch.request(verb)
	r.Object = ch.wanted
	return exchange(ctx, ch.target, r, ch.wanted)
}

// written returns the result of a write with this response.
func (ch change[T]) written(response T) WriteResult[T] {
	w := WriteResult[T]{
		Object: response, Outcome: Updated,
		Changed: diff(newContents(ch.client.shapes), ch.client.Cluster(), ch.before, response, ""),
	}
	if dry := ch.isDryRun(); !dry && response.GetResourceVersion() == ch.before.GetResourceVersion() ||
		dry && len(w.Changed) == 0 {
		w.Outcome, w.Changed = Unchanged, nil // the API server found no difference
	}
	return w
}

// contents returns the fields of the object before and after, without the metadata that the API server sets, and
// whether the status is a subresource.
func (ch change[T]) contents(ctx context.Context) (from, to map[string]any, apart bool, err error) {
	if apart, err = ch.statusApart(ctx); err == nil {
		from, err = ch.client.shapes.contentOf(ch.before)
	}
	if err == nil {
		to, err = ch.client.shapes.contentOf(ch.wanted)
	}
	if err == nil && isCoreSecret(ch.kind) {
		err = encodeStringData(to)
	}
	fields := []string{"apiVersion", "kind"}
	return difference.Without(from, fields, metadataOfServer()...),
		difference.Without(to, fields, metadataOfServer()...), apart, err
}

// patchBoth patches the object, and then its status.
func patchBoth[T kube.Object](ctx context.Context, ch change[T]) (WriteResult[T], error) {
	if !ch.exists {
		return createWithStatus(ctx, ch)
	}
	from, to, apart, err := ch.contents(ctx)
	if err != nil {
		return WriteResult[T]{}, err
	}
	fromStatus, toStatus := map[string]any{}, map[string]any{}
	if apart {
		fromStatus["status"], toStatus["status"] = from["status"], to["status"]
		delete(from, "status")
		delete(to, "status")
	}
	written := WriteResult[T]{Object: ch.before, Outcome: Unchanged}
	if patch := difference.MergePatch(from, to); len(patch) > 0 {
		response, err := ch.patch(ctx, ch.before, patch, "")
		if err != nil {
			return WriteResult[T]{}, err
		}
		written = ch.written(response)
	}
	if patch := difference.MergePatch(fromStatus, toStatus); len(patch) > 0 {
		return ch.patchStatus(ctx, written, patch)
	}
	return written, nil
}

// createWithStatus creates the object, and then patches its status if that is a subresource.
func createWithStatus[T kube.Object](ctx context.Context, ch change[T]) (WriteResult[T], error) {
	written, err := create(ctx, ch)
	if err != nil || ch.isDryRun() {
		return written, err
	}
	if apart, err := ch.statusApart(ctx); err != nil || !apart {
		return written, err
	}
	wanted, err := ch.client.shapes.contentOf(ch.wanted)
	if err != nil {
		return written, err
	}
	created, err := ch.client.shapes.contentOf(written.Object)
	if err != nil || wanted["status"] == nil || difference.Equal(project(wanted["status"], created["status"]),
		wanted["status"]) {
		return written, err
	}
	return ch.patchStatus(ctx, written, map[string]any{"status": wanted["status"]})
}

// patchStatus patches the status of written.Object.
func (ch change[T]) patchStatus(
	ctx context.Context, written WriteResult[T], fields map[string]any,
) (WriteResult[T], error) {
	response, err := ch.patch(ctx, written.Object, fields, "status")
	if err != nil {
		return written, fmt.Errorf("its status: %w", err)
	}
	written.StatusUpdated = ch.isDryRun() || response.GetResourceVersion() != written.Object.GetResourceVersion()
	if written.StatusUpdated && written.Outcome != Created {
		written.Outcome = Updated
		written.Changed = append(written.Changed, diff(newContents(ch.client.shapes), ch.client.Cluster(), ch.before,
			response, "status")...)
	}
	written.Object = response
	return written, nil
}

// patch sends a merge patch of these fields, if the object has not changed since seen.
func (ch change[T]) patch(ctx context.Context, seen T, fields map[string]any, subresource string) (T, error) {
	ch.subresource = subresource
	response, err := sendPatch(ctx, ch.target, mergeBody(fields).Locked(seen), seen)
	return response, asChanged(err)
}

// statusApart reports whether the status is a subresource. It reads the discovery again if another request has
// dropped it: the API server silently ignores a status that is sent with the object, so unknown must not count
// as "no".
func (ch change[T]) statusApart(ctx context.Context) (bool, error) {
	cluster := ch.client.config.Cluster
	if _, err := cluster.Resource(ctx, ch.kind); err != nil {
		return false, err
	}
	_, apart := cluster.SubresourceKind(ch.resource, "status")
	return apart, nil
}

func (ch change[T]) isDryRun() bool { return ch.dryRun || ch.client.config.DryRun }

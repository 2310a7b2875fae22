package compat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// writeTries is the number of attempts of a write that conflicts with other writes.
const writeTries = 3

// errPartial means that an update would remove fields that the informer's Go type lacks.
var errPartial = errors.New("the informer shows a part of it only")

// write is one call.
type write[T kube.Object] struct {
	client  *client.Client
	obj     T
	mutate  func(T) error
	options []client.WriteOption

	kind   schema.GroupVersionKind
	key    kube.Key
	shapes difference.Shapes
}

// change is one attempt: the object before, if it exists, and the wanted object.
type change[T kube.Object] struct {
	before, wanted T
	exists         bool
	partial        bool // before may lack fields that T has
}

// do writes the object, with up to writeTries attempts.
func (w *write[T]) do(
	ctx context.Context, action string, send func(context.Context, change[T]) (WriteResult[T], error),
) (WriteResult[T], error) {
	if err := w.resolve(ctx); err != nil {
		return WriteResult[T]{}, fmt.Errorf("%s: %w", action, err)
	}
	var done WriteResult[T] // result of attempts that wrote the object but not its status
	for try := 1; ; try++ {
		written, retryable, err := w.attempt(ctx, try > 1, send)
		if written.Outcome == "" {
			written.Object = done.Object
		}
		written = written.after(done)
		if err != nil && (!retryable || try == writeTries) {
			return written, fmt.Errorf("%s %s %s: %w", action, w.kind.Kind, w.key, err)
		}
		if err == nil {
			return written, nil
		}
		done = written
	}
}

// resolve validates the arguments, and sets the kind and the key.
func (w *write[T]) resolve(ctx context.Context) (err error) {
	if w.client == nil {
		return errors.New("the client is nil: client.New makes one")
	}
	if usercode.IsNil(w.obj) {
		return errors.New("the object is nil")
	}
	if w.kind, err = w.client.Cluster().KindOf(w.obj); err != nil {
		return fmt.Errorf("%s: %w", kube.KeyOf(w.obj), err)
	}
	w.key = kube.KeyOf(w.obj)
	w.key.Namespace = cmp.Or(w.key.Namespace, w.client.Config().Namespace)
	if len(w.options) > 0 { // EditMetadata has the same options, and makes no request
		_, _, err = client.EditMetadata(ctx, w.client, w.obj, func(_, _ map[string]string) {}, w.options...)
	}
	return err
}

// after returns the combined result of an earlier attempt and w.
func (w WriteResult[T]) after(earlier WriteResult[T]) WriteResult[T] {
	switch earlier.Outcome {
	case client.Created:
		w.Outcome, w.Changed = client.Created, nil
	case client.Updated:
		if w.Outcome != client.Created {
			w.Outcome, w.Changed = client.Updated, slices.Concat(earlier.Changed, w.Changed)
		}
	}
	return w
}

// attempt reads, mutates and writes. retryable reports whether the write failed because the object has changed
// since it was read. With live, it reads from the API server.
func (w *write[T]) attempt(
	ctx context.Context, live bool, send func(context.Context, change[T]) (WriteResult[T], error),
) (written WriteResult[T], retryable bool, err error) {
	options := []client.ReadOption{client.OfKind(w.kind)}
	if live {
		options = append(options, client.FromAPI())
	}
	before, err := client.Get[T](ctx, w.client, w.key, options...)
	exists := err == nil
	if err = client.IgnoreNotFound(err); err != nil {
		return written, false, err
	}
	if _, metadata := any(w.obj).(*metav1.PartialObjectMetadata); metadata && !exists {
		return written, false, fmt.Errorf("%w: it cannot be created of metadata only", client.ErrGone)
	}
	if !exists {
		if before, err = difference.Copy(w.obj); err != nil {
			return written, false, err
		}
		before.SetNamespace(w.key.Namespace)
		before.SetResourceVersion("")
	}
	wanted := before.DeepCopyObject().(T)
	if w.mutate != nil {
		if err := w.mutate(wanted); err != nil {
			return written, false, fmt.Errorf("mutate: %w", err)
		}
	}
	if kube.KeyOf(wanted) != w.key || wanted.GetUID() != before.GetUID() {
		return written, false, fmt.Errorf("mutate has changed the namespace, name or uid to %s with uid %q: "+
			"it must only change other fields of the object", kube.KeyOf(wanted), wanted.GetUID())
	}
	wanted.SetResourceVersion(before.GetResourceVersion())
	if !exists {
		wanted.SetUID("")
	}
	written, err = send(ctx, change[T]{
		before: before, wanted: wanted, exists: exists, partial: !live && w.hasPartialInformer(),
	})
	retryable = errors.Is(err, client.ErrChanged) || errors.Is(err, errPartial) ||
		errors.Is(err, client.ErrGone) && exists || apierrors.IsAlreadyExists(err) && !exists
	return written, retryable, err
}

// hasPartialInformer reports whether an informer of the kind has another Go type than T.
func (w *write[T]) hasPartialInformer() bool {
	for _, informer := range w.client.Config().Informers {
		model, whole := cache.Of(informer).NewObject()
		_, all := model.(*unstructured.Unstructured)
		if cache.Of(informer).Kind() == w.kind && whole && !all && reflect.TypeOf(model) != reflect.TypeFor[T]() {
			return true
		}
	}
	return false
}

// update creates or updates the whole object.
func (w *write[T]) update(ctx context.Context, ch change[T]) (WriteResult[T], error) {
	if !ch.exists {
		return w.create(ctx, ch)
	}
	from, to, apart, err := w.contents(ctx, ch)
	if err != nil {
		return WriteResult[T]{}, err
	}
	if apart {
		delete(from, "status")
		delete(to, "status")
	}
	if difference.Equal(from, to) {
		return WriteResult[T]{Object: ch.before, Outcome: client.Unchanged}, nil
	}
	if ch.partial {
		return WriteResult[T]{}, errPartial
	}
	response, err := client.Update(ctx, w.client, ch.wanted, w.options...)
	if err != nil {
		return WriteResult[T]{}, err
	}
	return w.written(ch, response), nil
}

func (w *write[T]) create(ctx context.Context, ch change[T]) (WriteResult[T], error) {
	created, err := client.Create(ctx, w.client, ch.wanted, w.options...)
	if err != nil {
		return WriteResult[T]{}, err
	}
	return WriteResult[T]{Object: created, Outcome: client.Created}, nil
}

// written returns the result of a write with this response.
func (w *write[T]) written(ch change[T], response T) WriteResult[T] {
	changed := client.Diff(w.client, ch.before, response)
	// The resourceVersion of a dry run does not change.
	if len(changed) == 0 && response.GetResourceVersion() == ch.before.GetResourceVersion() {
		return WriteResult[T]{Object: response, Outcome: client.Unchanged}
	}
	return WriteResult[T]{Object: response, Outcome: client.Updated, Changed: changed}
}

// contents returns the fields of the object before and after, without the metadata that the API server sets, and
// whether the status is a subresource.
func (w *write[T]) contents(ctx context.Context, ch change[T]) (from, to map[string]any, apart bool, err error) {
	if apart, err = w.statusApart(ctx); err == nil {
		from, err = w.shapes.Content(ch.before)
	}
	if err == nil {
		to, err = w.shapes.Content(ch.wanted)
	}
	if err == nil && w.kind.GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		err = difference.EncodeStringData(to)
	}
	fields := []string{"apiVersion", "kind"}
	return difference.Without(from, fields, difference.ServerMetadata()...),
		difference.Without(to, fields, difference.ServerMetadata()...), apart, err
}

// patchBoth patches the object, and then its status.
func (w *write[T]) patchBoth(ctx context.Context, ch change[T]) (WriteResult[T], error) {
	if !ch.exists {
		return w.createWithStatus(ctx, ch)
	}
	from, to, apart, err := w.contents(ctx, ch)
	if err != nil {
		return WriteResult[T]{}, err
	}
	fromStatus, toStatus := map[string]any{}, map[string]any{}
	if apart {
		fromStatus["status"], toStatus["status"] = from["status"], to["status"]
		delete(from, "status")
		delete(to, "status")
	}
	written := WriteResult[T]{Object: ch.before, Outcome: client.Unchanged}
	if patch := difference.MergePatch(from, to); len(patch) > 0 {
		response, err := w.patch(ctx, ch.before, patch, w.options)
		if err != nil {
			return WriteResult[T]{}, err
		}
		written = w.written(ch, response)
	}
	if patch := difference.MergePatch(fromStatus, toStatus); len(patch) > 0 {
		return w.patchStatus(ctx, ch, written, patch)
	}
	return written, nil
}

// createWithStatus creates the object, and then patches its status if that is a subresource.
func (w *write[T]) createWithStatus(ctx context.Context, ch change[T]) (WriteResult[T], error) {
	written, err := w.create(ctx, ch)
	if err != nil || written.Object.GetResourceVersion() == "" { // the response to a dry run
		return written, err
	}
	if apart, err := w.statusApart(ctx); err != nil || !apart {
		return written, err
	}
	wanted, err := w.shapes.Content(ch.wanted)
	if err != nil {
		return written, err
	}
	created, err := w.shapes.Content(written.Object)
	if err != nil || wanted["status"] == nil ||
		difference.Equal(difference.Project(wanted["status"], created["status"]), wanted["status"]) {
		return written, err
	}
	return w.patchStatus(ctx, ch, written, map[string]any{"status": wanted["status"]})
}

// patchStatus patches the status of written.Object.
func (w *write[T]) patchStatus(
	ctx context.Context, ch change[T], written WriteResult[T], fields map[string]any,
) (WriteResult[T], error) {
	options := slices.Concat(w.options, []client.WriteOption{client.Subresource("status")})
	response, err := w.patch(ctx, written.Object, fields, options)
	if err != nil {
		return written, fmt.Errorf("its status: %w", err)
	}
	changed := w.statusChanges(ch.before, response)
	written.StatusUpdated = len(changed) > 0 || response.GetResourceVersion() != written.Object.GetResourceVersion()
	if written.StatusUpdated && written.Outcome != client.Created {
		written.Outcome, written.Changed = client.Updated, append(written.Changed, changed...)
	}
	written.Object = response
	return written, nil
}

// patch sends a merge patch of these fields, if the object has not changed since seen.
func (w *write[T]) patch(
	ctx context.Context, seen T, fields map[string]any, options []client.WriteOption,
) (T, error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return seen, fmt.Errorf("encode the patch: %w", err)
	}
	return client.Patch(ctx, w.client, seen, client.RawPatch(types.MergePatchType, body).Locked(seen), options...)
}

// statusChanges returns the changed fields of the status.
func (w *write[T]) statusChanges(before, after T) (changes []client.FieldChange) {
	hides := func(path string) bool { return w.client.Cluster().Hides(w.kind.GroupKind(), path) }
	walker := difference.Walker{Expand: true, Report: func(path difference.Path, from, to any) {
		if hides(path.Indexed()) {
			from, to = client.Hidden, client.Hidden
		}
		changes = append(changes, client.FieldChange{Path: path.Shown(hides), Before: from, After: to})
	}}
	statusOf := func(obj T) map[string]any {
		content, _ := w.shapes.Content(obj) // without an error: it was encoded before
		return map[string]any{"status": content["status"]}
	}
	walker.Walk(statusOf(before), statusOf(after))
	slices.SortStableFunc(changes, func(a, b client.FieldChange) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// statusApart reports whether the status is a subresource. It reads the discovery again if another request has
// dropped it: the API server silently ignores a status that is sent with the object, so unknown must not count
// as "no".
func (w *write[T]) statusApart(ctx context.Context) (bool, error) {
	resource, err := w.client.Cluster().Resource(ctx, w.kind)
	if err != nil {
		return false, err
	}
	_, apart := w.client.Cluster().SubresourceKind(resource, "status")
	return apart, nil
}

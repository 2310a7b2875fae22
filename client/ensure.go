package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// WriteResult is what came of CreateOrUpdate and CreateOrPatch.
type WriteResult[T any] struct {
	// Object is the object as the API server has it, or as it was found when it is Unchanged.
	Object T
	// Outcome is Created, Updated or Unchanged. Empty when an error says that nothing certain
	// has come of it.
	Outcome ObjectOutcome
	// Changed are the fields of the object that have changed, when it was Updated, also those of
	// the status.
	Changed []FieldChange
	// StatusUpdated is true when the status was written by a request of its own. When nothing
	// else was, all Changed are in the status.
	StatusUpdated bool
}

// writeTries is how often a write begins anew that others came before.
const writeTries = 3

// CreateOrUpdate has mutate make the object as it should be, and writes it if that has changed
// anything. It is for those who come from other libraries, and for kinds that know no apply. Apply
// is the better way: it names the fields that are wanted, and touches no others.
//
//	written, err := client.CreateOrUpdate(ctx, c, config, func(config *corev1.ConfigMap) error {
//		config.Data = map[string]string{"mode": "fast"}
//		return nil
//	})
//
// Flow:
//
//  1. The object of obj's name is read, from an informer or the API server. mutate is called
//     with a copy of it; when there is none, with a copy of obj.
//  2. When mutate has changed nothing, no request is made. Empty and missing fields of Go types
//     are the same.
//  3. Otherwise the object is created, or updated: if it is still what mutate has seen.
//  4. If it is not, because others wrote to it, created or deleted it, it is read from the API
//     server, and mutate called again: mutate has up to 3 tries. It must only do what may be
//     done again. The same is done before an update of what an informer of another Go type has
//     shown, because fields that this type does not know are missing there.
//
// obj itself is not changed; the result is WriteResult.Object. mutate must not change namespace, name
// and uid. It should set fields one by one: a struct or a list that it replaces as a whole
// (Spec.Template.Spec = corev1.PodSpec{...}) loses what the API server has filled in, so it differs in
// every run and is sent in every run. The Outcome is Unchanged, because the API server fills it in
// again; a controller's Explain shows an update with "no change". The same happens with values that
// the API server writes in another way than mutate ("1000m" for "1", in unstructured objects).
// Apply has neither trouble.
//
// Where the status is a subresource, it is neither compared nor written: CreateOrPatch does both.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: that of mutate; ErrChanged when others came first three times. Objects that are
// metadata only are refused: the rest of the object would be lost.
func CreateOrUpdate[T kube.Object](ctx context.Context, c *Client, obj T, mutate func(obj T) error, options ...WriteOption) (WriteResult[T], error) {
	if _, metadata := any(obj).(*metav1.PartialObjectMetadata); metadata {
		return WriteResult[T]{}, fmt.Errorf("create or update %s: it has metadata only, and an update would remove the rest: CreateOrPatch and Apply change metadata",
			keyOf(obj))
	}
	return createOr(ctx, c, "create or update", obj, mutate, update[T], options)
}

// CreateOrPatch is CreateOrUpdate by a merge patch of what mutate has changed: fields that T does
// not know are kept. The status is patched by a request of its own, of kinds whose status is a
// subresource; a new object gets the status that mutate, or obj, has given it.
//
// The patch has the condition that the object is still what mutate has seen, because a merge
// patch replaces lists as a whole.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of CreateOrUpdate. When the status could not be written, what was written before
// stays; WriteResult says so.
func CreateOrPatch[T kube.Object](ctx context.Context, c *Client, obj T, mutate func(obj T) error, options ...WriteOption) (WriteResult[T], error) {
	return createOr(ctx, c, "create or patch", obj, mutate, patchBoth[T], options)
}

// keyOf is kube.KeyOf for what may be nil.
func keyOf(obj kube.Object) kube.Key {
	if usercode.IsNil(obj) {
		return kube.Key{}
	}
	return kube.KeyOf(obj)
}

// change is what one try writes: what makes wanted of before, or of nothing.
type change[T kube.Object] struct {
	target
	settings settings
	before   T
	exists   bool
	partial  bool // before lacks fields that T may have
	wanted   T
}

// errPartial says that an update would remove what the informer's Go type does not know.
var errPartial = errors.New("the informer shows a part of it only")

func createOr[T kube.Object](
	ctx context.Context, c *Client, doing string, obj T, mutate func(T) error,
	write func(context.Context, change[T]) (WriteResult[T], error), options []WriteOption,
) (WriteResult[T], error) {
	s, err := newSettings(options)
	if err != nil {
		return WriteResult[T]{}, fmt.Errorf("%s: %w", doing, err)
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return WriteResult[T]{}, fmt.Errorf("%s: %w", doing, err)
	}
	var done WriteResult[T] // of tries that wrote the object, and then not its status
	for try := 1; ; try++ {
		find := currentState[T]
		if try > 1 {
			find = readState[T] // what the informer shows was too old
		}
		written, again, err := tryOnce(ctx, t, s, obj, mutate, find, write)
		if written.Outcome == "" {
			written.Object = done.Object
		}
		written = written.after(done)
		if err == nil {
			return written, nil
		}
		if !again || try == writeTries {
			return written, fmt.Errorf("%s %s: %w", doing, t, err)
		}
		done = written
	}
}

// after returns what has come of an earlier try and of w together.
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

// tryOnce reads, mutates and writes. again reports whether it failed because the object is not
// what was read.
func tryOnce[T kube.Object](
	ctx context.Context, t target, s settings, obj T, mutate func(T) error,
	find func(context.Context, target, T) (state[T], error), write func(context.Context, change[T]) (WriteResult[T], error),
) (written WriteResult[T], again bool, err error) {
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
		return written, false, fmt.Errorf("mutate has made it %s with uid %q: it must not change namespace, name and uid; "+
			"it was given the object as it is, to change single fields of it", kube.KeyOf(wanted), wanted.GetUID())
	}
	wanted.SetResourceVersion(base.GetResourceVersion())
	if !seen.exists {
		wanted.SetUID("")
	}
	written, err = write(ctx, change[T]{target: t, settings: s, before: base, exists: seen.exists, partial: seen.partial, wanted: wanted})
	again = errors.Is(err, ErrChanged) || errors.Is(err, errPartial) || errors.Is(err, ErrGone) && seen.exists || apierrors.IsAlreadyExists(err) && !seen.exists
	return written, again, err
}

// copyOf returns a copy of obj. Unstructured objects that were written by hand may have ints, at
// which their DeepCopy panics.
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
	if equal(from, to) {
		return WriteResult[T]{Object: ch.before, Outcome: Unchanged}, nil
	}
	if ch.partial {
		return WriteResult[T]{}, errPartial
	}
	r := ch.request(VerbUpdate, ch.settings)
	r.Object = ch.wanted
	answer, err := exchange(ctx, ch.target, r, ch.wanted)
	if err != nil {
		return WriteResult[T]{}, asChanged(err)
	}
	return ch.written(answer, r.DryRun), nil
}

func create[T kube.Object](ctx context.Context, ch change[T]) (WriteResult[T], error) {
	r := ch.request(VerbCreate, ch.settings)
	r.Object = ch.wanted
	answer, err := exchange(ctx, ch.target, r, ch.wanted)
	if err != nil {
		return WriteResult[T]{}, err
	}
	return WriteResult[T]{Object: answer, Outcome: Created}, nil
}

// written says what has come of a write whose answer is there.
func (ch change[T]) written(answer T, dryRun bool) WriteResult[T] {
	w := WriteResult[T]{Object: answer, Outcome: Updated, Changed: diff(newContents(ch.client.shapes), ch.before, answer, "")}
	if answer.GetResourceVersion() == ch.before.GetResourceVersion() && !dryRun || dryRun && len(w.Changed) == 0 {
		w.Outcome, w.Changed = Unchanged, nil // the API server has taken it for the same
	}
	return w
}

// contents returns the fields of the object before and after, without the metadata that is the
// API server's, and whether the status among them is written apart.
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
	for _, content := range []map[string]any{from, to} {
		metadata, _ := content["metadata"].(map[string]any)
		for _, name := range metadataOfServer() {
			delete(metadata, name)
		}
		delete(content, "apiVersion")
		delete(content, "kind")
	}
	return from, to, apart, err
}

// patchBoth writes what differs, and then what differs of the status.
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
	if difference := mergeDifference(from, to); len(difference) > 0 {
		answer, err := ch.patch(ctx, ch.before, difference, "")
		if err != nil {
			return WriteResult[T]{}, err
		}
		written = ch.written(answer, ch.dryRun())
	}
	if difference := mergeDifference(fromStatus, toStatus); len(difference) > 0 {
		return ch.patchStatus(ctx, written, difference)
	}
	return written, nil
}

// createWithStatus creates the object; the API server leaves the status out where it is a
// subresource.
func createWithStatus[T kube.Object](ctx context.Context, ch change[T]) (WriteResult[T], error) {
	written, err := create(ctx, ch)
	if err != nil || ch.dryRun() {
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
	if err != nil || wanted["status"] == nil || equal(project(wanted["status"], created["status"]), wanted["status"]) {
		return written, err
	}
	return ch.patchStatus(ctx, written, map[string]any{"status": wanted["status"]})
}

// patchStatus patches the status of written.Object.
func (ch change[T]) patchStatus(ctx context.Context, written WriteResult[T], difference map[string]any) (WriteResult[T], error) {
	answer, err := ch.patch(ctx, written.Object, difference, "status")
	if err != nil {
		return written, fmt.Errorf("its status: %w", err)
	}
	written.StatusUpdated = ch.dryRun() || answer.GetResourceVersion() != written.Object.GetResourceVersion()
	if written.StatusUpdated && written.Outcome != Created {
		written.Outcome = Updated
		written.Changed = append(written.Changed, diff(newContents(ch.client.shapes), ch.before, answer, "status")...)
	}
	written.Object = answer
	return written, nil
}

// patch sends what differs, if the object is still seen.
func (ch change[T]) patch(ctx context.Context, seen T, difference map[string]any, subresource string) (T, error) {
	var none T
	version, err := versionOf(seen)
	if err != nil {
		return none, err
	}
	lock(difference, version)
	s := ch.settings
	s.subresource = subresource
	r := ch.request(VerbPatch, s)
	r.PatchType = types.MergePatchType
	if r.Body, err = json.Marshal(difference); err != nil {
		return none, fmt.Errorf("encode: %w", err)
	}
	answer, err := exchange(ctx, ch.target, r, seen)
	return answer, asChanged(err)
}

// statusApart reports whether the status is a subresource: of other kinds it is a field as any.
// It is asked of the cluster again if another request has made that forget the kind: what is not
// known is not "no", for the API server drops a status in silence that comes with the object.
func (ch change[T]) statusApart(ctx context.Context) (bool, error) {
	cluster := ch.client.config.Cluster
	if _, err := cluster.Resource(ctx, ch.kind); err != nil {
		return false, err
	}
	_, apart := cluster.SubresourceKind(ch.resource, "status")
	return apart, nil
}

func (ch change[T]) dryRun() bool { return ch.settings.dryRun || ch.client.config.DryRun }

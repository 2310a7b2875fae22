package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/kube"
)

// state is the state of an object before it is written.
type state[T kube.Object] struct {
	object  T
	exists  bool
	cached  bool // an informer shows it
	applied bool // it is known to be as an apply would make it
	partial bool // fields may be missing that the type of the informer's objects does not know
}

// cachedState finds the object in the client's informers that keep whole objects, or also in those
// that keep parts. answered is false when the API server has to be asked.
func cachedState[T kube.Object](t target, like T, parts bool) (seen state[T], answered bool, err error) {
	covered := false
	for informer := range t.client.informersOf(t.kind) {
		model, whole := informer.Model()
		if !whole && !parts {
			continue
		}
		obj, found, err := informer.Object(t.key)
		if err != nil {
			return seen, false, fmt.Errorf("read it from informer %q: %w", informer.Name(), err)
		}
		if !found {
			covered = covered || informer.Covers(t.key.Namespace, nil)
			continue
		}
		shown, err := convert(obj, t.kind, like)
		if err != nil {
			return seen, false, fmt.Errorf("read it from informer %q: %w", informer.Name(), err)
		}
		_, all := model.(*unstructured.Unstructured)
		partial := !all && reflect.TypeOf(model) != reflect.TypeOf(shown)
		return state[T]{object: shown, exists: true, cached: true, partial: partial}, true, nil
	}
	return seen, covered, nil
}

// readState reads the state of the object from the API server.
func readState[T kube.Object](ctx context.Context, t target, like T) (state[T], error) {
	obj, err := get(ctx, t, settings{}, like)
	switch {
	case errors.Is(err, ErrGone):
		return state[T]{}, nil
	case err != nil:
		return state[T]{}, fmt.Errorf("read it: %w", err)
	}
	return state[T]{object: obj, exists: true}, nil
}

// gone returns the error of who needs an object that is not there.
func (t target) gone() error {
	return fmt.Errorf("%w: %w", ErrGone, apierrors.NewNotFound(t.resource.GroupResource(), t.key.Name))
}

// currentState finds the state of the object, from an informer if one shows it or covers its
// namespace, otherwise from the API server.
func currentState[T kube.Object](ctx context.Context, t target, like T) (state[T], error) {
	seen, answered, err := cachedState(t, like, false)
	if err != nil || answered {
		return seen, err
	}
	return readState(ctx, t, like)
}

// stateBefore is currentState for an apply: also whether the object is as the apply would make it.
func stateBefore[T kube.Object](ctx context.Context, a application, like T) (state[T], error) {
	if isMetadata(like) {
		// An informer that keeps parts only can tell that they are right, and not what is wrong.
		seen, _, err := cachedState(a.target, like, true)
		if err == nil && seen.exists {
			seen.applied, err = a.isApplied(seen.object)
		}
		if err != nil || seen.applied {
			return seen, err
		}
	}
	seen, err := currentState(ctx, a.target, like)
	if err == nil && seen.cached {
		seen.applied, err = a.isApplied(seen.object)
	}
	return seen, err
}

// isApplied reports whether shown, which an informer shows, is what the same apply has made
// before.
func (a application) isApplied(shown kube.Object) (bool, error) {
	last, ok := a.client.applied.get(a.id)
	if !ok || a.settings.unchanged || last.uid != shown.GetUID() || a.uid != "" && a.uid != shown.GetUID() || !last.configured.same(a.configured) {
		return false, nil
	}
	if last.version == shown.GetResourceVersion() {
		return true, nil // the very state
	}
	if len(shown.GetManagedFields()) > 0 && !last.entry.same(a.entryIn(shown)) {
		return false, nil // somebody has taken fields, or given some to the owner
	}
	now, err := a.shownIn(shown)
	if err != nil || !last.shown.same(now) {
		return false, err
	}
	a.client.applied.saw(a.id, last, shown.GetResourceVersion())
	return true, nil
}

// isUnchanged reports whether the apply has changed nothing. before is nil when it is not known,
// last is what was remembered until now.
func (a application) isUnchanged(before kube.Object, after, last appliedState, noChanges bool) (bool, error) {
	remembered := last.uid == after.uid && last.uid != ""
	if before == nil && !remembered {
		return false, nil
	}
	entry := last.entry
	if before != nil && len(before.GetManagedFields()) > 0 {
		entry = a.entryIn(before)
	} else if !remembered {
		entry = digest{}
	}
	if a.request.DryRun {
		// The resourceVersion is that of the object before, whatever would have changed.
		return before != nil && noChanges && (entry == digest{} || entry.same(after.entry)), nil
	}
	if before != nil && before.GetResourceVersion() == after.version || remembered && last.version == after.version {
		return true, nil
	}
	// Somebody has written since. It was not this apply, if the owner's fields have the values that
	// were known, and the API server has not noted another change by the owner.
	if !entry.same(after.entry) {
		return false, nil
	}
	if remembered && (before == nil || older(before.GetResourceVersion(), last.version)) {
		return last.configured == a.configured && last.shown.same(after.shown), nil
	}
	shown, err := a.shownIn(before)
	return shown.same(after.shown), err
}

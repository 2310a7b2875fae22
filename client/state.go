package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/kube"
)

// state is the state of an object before it is written.
type state[T kube.Object] struct {
	object  T
	exists  bool
	cached  bool // an informer shows it
	applied bool // it is known to be as an apply would make it
	// entry says what the field manager that the informer keeps has applied; nil: not known.
	entry   *metav1.ManagedFieldsEntry
	partial bool // fields may be missing that the type of the informer's objects does not know
}

// cachedState finds the object in the client's informers that keep whole objects, or also in those
// that keep parts. answered is false when the API server has to be asked.
func cachedState[T kube.Object](t target, like T, parts bool) (seen state[T], answered bool, err error) {
	covered := false
	for informer := range t.client.informersOf(t.kind) {
		model, whole := informer.NewObject()
		if !whole && !parts {
			continue
		}
		// An informer that begins to cover after it was read may have the object by now, and one
		// that was stopped meanwhile has lost it: neither says that the object is missing.
		covers := informer.Covers(t.key.Namespace, nil)
		obj, entry, found, err := informer.Object(t.key)
		if err != nil {
			return seen, false, fmt.Errorf("read it from informer %q: %w", informer.Name(), err)
		}
		if !found {
			covered = covered || covers && informer.Covers(t.key.Namespace, nil)
			continue
		}
		shown, err := convert(obj, t.kind, like)
		if err != nil {
			return seen, false, fmt.Errorf("read it from informer %q: %w", informer.Name(), err)
		}
		_, all := model.(*unstructured.Unstructured)
		partial := !all && reflect.TypeOf(model) != reflect.TypeOf(shown)
		return state[T]{object: shown, exists: true, cached: true, entry: entry, partial: partial}, true, nil
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
			seen.applied, err = a.isApplied(seen.object, a.entryOf(seen.object, seen.entry))
		}
		if err != nil || seen.applied {
			return seen, err
		}
	}
	seen, err := currentState(ctx, a.target, like)
	if err == nil && seen.cached {
		seen.entry = a.entryOf(seen.object, seen.entry)
		seen.applied, err = a.isApplied(seen.object, seen.entry)
	}
	return seen, err
}

// isApplied reports whether shown, which an informer shows, is what the apply would make of it. entry
// is the field owner's in managedFields; nil when it is not known.
func (a application) isApplied(shown kube.Object, entry *metav1.ManagedFieldsEntry) (bool, error) {
	if a.settings.unchanged || a.uid != "" && a.uid != shown.GetUID() {
		return false, nil
	}
	last, known := a.client.applied.get(a.id)
	remembered := known && last.uid == shown.GetUID()
	sameTerm := remembered && last.term == a.term // otherwise only the version counts
	sameTerm = sameTerm && last.configured.same(a.configured)
	var shownAs digest
	if sameTerm && last.version == shown.GetResourceVersion() {
		// The version alone does not say so: an API server that was restored from a backup uses
		// versions again.
		if shownAs = digestOfShown(shown); last.shownAs.same(shownAs) {
			if last.input != a.input {
				a.client.applied.confirm(a.id, last, last.version, shownAs, a.input)
			}
			return true, nil // the very state
		}
	}
	isOlder := known && older(shown.GetResourceVersion(), last.version)
	if entry != nil && a.settings.subresource == "" && !isOlder && !a.client.applied.hasRecentWrite(a.id) {
		match, err := a.matches(shown, entry)
		if match && !a.request.DryRun {
			a.rememberSeen(shown, last, known, sameTerm)
		}
		if err != nil || match {
			return match, err
		}
	}
	if !sameTerm {
		return false, nil
	}
	if entry != nil && !last.entry.same(a.digestOfEntry(entry)) || entry == nil && len(shown.GetManagedFields()) > 0 {
		return false, nil // another client has taken fields, or given some to the owner
	}
	now, err := a.shownIn(shown)
	if err != nil || !last.shown.same(now) {
		return false, err
	}
	if shownAs == (digest{}) {
		shownAs = digestOfShown(shown)
	}
	a.client.applied.confirm(a.id, last, shown.GetResourceVersion(), shownAs, a.input)
	return true, nil
}

// rememberSeen remembers that the object is as the apply would make it, in the state that an informer
// shows, so that the next apply need not compare that state with the configuration. last is what is
// remembered, if anything is known; it is about the same configuration and term with sameTerm.
func (a application) rememberSeen(shown kube.Object, last appliedState, known, sameTerm bool) {
	shownAs := digestOfShown(shown)
	if sameTerm {
		a.client.applied.confirm(a.id, last, shown.GetResourceVersion(), shownAs, a.input)
		return
	}
	var replaced *appliedState
	if known {
		replaced = &last
	}
	// shown and entry stay unknown: with managedFields they are not needed, and take time to compute.
	a.client.applied.replace(a.id, replaced, appliedState{
		uid: shown.GetUID(), version: shown.GetResourceVersion(), input: a.input, configured: a.configured, shownAs: shownAs, term: a.term,
	})
}

// matches reports whether the fields that the field owner has applied, and the object, are as the
// configuration says. Nothing is remembered for it, so it holds after a restart, too.
func (a application) matches(shown kube.Object, entry *metav1.ManagedFieldsEntry) (bool, error) {
	sameConfiguration := false
	if a.settings.hash != "" {
		hash := shown.GetAnnotations()[a.settings.hash]
		if err := a.desired.compute(); err != nil {
			return false, err
		}
		if sameConfiguration = hash != "" && hash == a.hash(); !sameConfiguration {
			return false, nil
		}
	}
	if err := a.desired.compute(); err != nil {
		return false, err
	}
	return fieldsMatch(entry, a.desired.declared, sameConfiguration, func() (map[string]any, error) { return a.contents.of(shown) })
}

// hash is the configuration's own, with option ConfigurationHash.
func (a application) hash() string {
	metadata, _ := a.desired.declared["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	hash, _ := annotations[a.settings.hash].(string)
	return hash
}

// isUnchanged reports whether the apply has changed nothing. before is nil when it is not known, known
// is the field owner's entry in it, and last is what was remembered until now.
func (a application) isUnchanged(
	before kube.Object, known *metav1.ManagedFieldsEntry, after, last appliedState, noChanges bool,
) (bool, error) {
	remembered := last.uid == after.uid && last.uid != ""
	if before == nil && !remembered {
		return false, nil
	}
	entry := last.entry
	switch {
	case before != nil && known != nil:
		entry = a.digestOfEntry(known)
	case before != nil && len(before.GetManagedFields()) > 0:
		entry = a.entryIn(before)
	case !remembered:
		entry = digest{}
	}
	if a.request.DryRun {
		// The resourceVersion is that of the object before, whatever would have changed.
		return before != nil && noChanges && (entry == digest{} || entry.same(after.entry)), nil
	}
	if before != nil && before.GetResourceVersion() == after.version || remembered && last.version == after.version {
		return true, nil
	}
	if a.settings.unchanged {
		return false, nil // the version that it was made for was the object's, and is not any more
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

package client

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// state is the state of an object before it is written.
type state[T kube.Object] struct {
	object  T
	exists  bool
	cached  bool // read from an informer
	applied bool // the apply would not change it
	// entry contains the fields that the informer's field manager has applied; nil: unknown.
	entry *metav1.ManagedFieldsEntry
}

// cachedState reads the object from those of informers that keep whole objects; with parts, also from those that keep
// parts of objects. If answered is false, the caller must read from the API server.
func cachedState[T kube.Object](
	t target, like T, parts bool, informers []cache.Informer,
) (seen state[T], answered bool, err error) {
	covered := false
	for _, informer := range informers {
		if _, whole := informer.NewObject(); !whole && !parts {
			continue
		}
		// An informer that covers the object only after it was read may have the object by now. One that was stopped in
		// between has lost it. Neither proves that the object is missing.
		covers := informer.Covers(t.key.Namespace, nil)
		obj, entry, found, err := readerFor(informer, like).Object(t.key)
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
		return state[T]{object: shown, exists: true, cached: true, entry: entry}, true, nil
	}
	return seen, covered, nil
}

// readState reads the state of the object from the API server.
func readState[T kube.Object](ctx context.Context, t target, like T) (state[T], error) {
	t.subresource = "" // the whole object
	obj, err := get(ctx, t, like)
	switch {
	case errors.Is(err, ErrGone):
		return state[T]{}, nil
	case err != nil:
		return state[T]{}, fmt.Errorf("read it: %w", err)
	}
	return state[T]{object: obj, exists: true}, nil
}

// gone returns the error for an object that does not exist.
func (t target) gone() error {
	return fmt.Errorf("%w: %w", ErrGone, apierrors.NewNotFound(t.resource.GroupResource(), t.key.Name))
}

// currentState returns the state of the object: from an informer if one shows it or covers its namespace, otherwise
// from the API server.
func currentState[T kube.Object](ctx context.Context, t target, like T) (state[T], error) {
	seen, answered, err := cachedState(t, like, false, t.client.informers[t.kind])
	if err != nil || answered {
		return seen, err
	}
	return readState(ctx, t, like)
}

// stateBefore is like currentState, for an apply: it also determines whether the apply would not change the object.
func stateBefore[T kube.Object](ctx context.Context, a application, like T) (state[T], error) {
	if isMetadata(like) {
		// An informer that keeps only parts of objects can show that the apply would change nothing. It cannot show the
		// changes that the apply would make.
		seen, _, err := cachedState(a.target, like, true, a.client.informers[a.kind])
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

// isApplied reports whether the apply would not change shown, the informer's object. entry is the field owner's entry
// in managedFields; nil if it is unknown.
func (a application) isApplied(shown kube.Object, entry *metav1.ManagedFieldsEntry) (bool, error) {
	// An apply that would write nothing needs no precondition, unless the informer is behind the caller's object.
	isBehind := a.unchanged &&
		apiobject.OlderVersion(shown.GetResourceVersion(), a.desired.object.GetResourceVersion())
	if isBehind || a.uid != "" && a.uid != shown.GetUID() {
		return false, nil
	}
	last, known := a.client.applied.get(a.id)
	remembered := known && last.uid == shown.GetUID()
	sameTerm := remembered && last.term == a.term // otherwise only the version counts
	sameTerm = sameTerm && last.configured.same(a.configured)
	var shownAs digest
	if sameTerm && last.version == shown.GetResourceVersion() {
		// The version alone is not enough: an API server that was restored from a backup uses versions again.
		if shownAs = digestOfShown(shown); last.shownAs.same(shownAs) {
			if last.input != a.input {
				a.client.applied.confirm(a.id, last, last.version, shownAs, a.input)
			}
			return true, nil // the same state
		}
	}
	isOlder := known && apiobject.OlderVersion(shown.GetResourceVersion(), last.version)
	if entry != nil && a.subresource == "" && !isOlder && !a.client.applied.hasRecentWrite(a.id) {
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
		return false, nil // another client has removed fields from the entry, or added some
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

// rememberSeen stores that the apply would not change the informer's object, so that the next apply need not compare
// the object with the configuration. last is the stored state, if known is true. With sameTerm, it has the same
// configuration and term.
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
	// The fields shown and entry stay unset: they are not needed with managedFields, and computing them takes time.
	a.client.applied.replace(a.id, replaced, appliedState{
		uid: shown.GetUID(), version: shown.GetResourceVersion(), input: a.input, configured: a.configured,
		shownAs: shownAs, term: a.term,
	})
}

// matches reports whether both the fields that the field owner has applied and the object match the configuration. It
// uses no stored state, so it also works after a restart.
func (a application) matches(shown kube.Object, entry *metav1.ManagedFieldsEntry) (bool, error) {
	if err := a.desired.compute(); err != nil {
		return false, err
	}
	if a.hash != "" {
		hash, _, _ := unstructured.NestedString(a.desired.declared, "metadata", "annotations", a.hash)
		if hash == "" || hash != shown.GetAnnotations()[a.hash] {
			return false, nil
		}
	}
	return fieldsMatch(entry, a.desired.declared, a.hash != "", func() (map[string]any, error) {
		return a.contents.of(shown)
	})
}

// isUnchanged reports whether the apply has changed nothing. before is nil if it is unknown, known is the field owner's
// entry in before, and last is the stored state before the apply.
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
		// A dry run returns the resourceVersion of the object before, even if it would change the object.
		return before != nil && noChanges && (entry == digest{} || entry.same(after.entry)), nil
	}
	if before != nil && before.GetResourceVersion() == after.version || remembered && last.version == after.version {
		return true, nil
	}
	if a.unchanged {
		return a.desired.object.GetResourceVersion() == after.version, nil // the version that the apply required
	}
	// Another write has changed the object. It was not this apply if the field owner's fields have the known values,
	// and its entry in managedFields is unchanged.
	if !entry.same(after.entry) {
		return false, nil
	}
	if remembered && (before == nil || apiobject.OlderVersion(before.GetResourceVersion(), last.version)) {
		return last.configured == a.configured && last.shown.same(after.shown), nil
	}
	shown, err := a.shownIn(before)
	return shown.same(after.shown), err
}

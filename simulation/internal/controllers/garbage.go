package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// garbageCollector models the garbage collector: it deletes objects whose owners do not exist, and does the work of the
// finalizers foregroundDeletion and orphan. Unlike the real one it has no graph with absent owners: it examines an
// object that got a reference to an absent owner, and the dependents of an owner that is deleted.
type garbageCollector struct {
	*Manager
	requests *requester
}

func (g *garbageCollector) String() string { return "generic-garbage-collector" }

// collectorKey is readable and sorts by resource; it ends with the uid.
func collectorKey(e *entry) string {
	return fmt.Sprintf("%s %s %s", resourceOf(e.kind), objectKey(e.obj), e.obj.GetUID())
}

func (g *garbageCollector) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	examine := func(uid types.UID) {
		if e := g.state.byUID[uid]; e != nil {
			add(collectorKey(e), now)
		}
	}
	examineDependents := func(owner types.UID) {
		for uid := range g.state.dependents[owner] {
			examine(uid)
		}
	}
	if c.Object == nil {
		examineDependents(c.Old.GetUID())
		for _, ref := range c.Old.GetOwnerReferences() {
			if owner := g.state.byUID[ref.UID]; owner != nil && deletesDependents(owner.obj) {
				examine(ref.UID)
			}
		}
		return
	}
	var before []metav1.OwnerReference
	if c.Old != nil {
		before = c.Old.GetOwnerReferences()
	}
	references := c.Object.GetOwnerReferences()
	for _, old := range before {
		i := indexByUID(references, old.UID)
		if isTrue(old.BlockOwnerDeletion) && (i < 0 || !isTrue(references[i].BlockOwnerDeletion)) {
			examine(old.UID)
		}
	}
	for _, ref := range references {
		if indexByUID(before, ref.UID) >= 0 {
			continue
		}
		owner := g.state.byUID[ref.UID]
		if owner == nil || !refersTo(ref, owner) || owner.obj.GetNamespace() != "" &&
			owner.obj.GetNamespace() != c.Object.GetNamespace() {
			examine(c.Object.GetUID())
		}
	}
	switch {
	case starts(c, orphansDependents):
		examine(c.Object.GetUID())
	case starts(c, deletesDependents):
		examineDependents(c.Object.GetUID())
		examine(c.Object.GetUID())
	}
}

// starts reports whether a predicate holds for an object only after a change.
func starts(c apiserver.Change, predicate func(metav1.Object) bool) bool {
	return predicate(c.Object) && (c.Old == nil || !predicate(c.Old))
}

// deletesDependents reports whether an object waits for the deletion of its dependents.
func deletesDependents(obj metav1.Object) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// orphansDependents reports whether an object waits until no dependent refers to it.
func orphansDependents(obj metav1.Object) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

func isTrue(b *bool) bool { return b != nil && *b }

func indexByUID(references []metav1.OwnerReference, uid types.UID) int {
	return slices.IndexFunc(references, func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

// refersTo reports whether a reference has the kind and name of the object with its uid.
func refersTo(ref metav1.OwnerReference, owner *entry) bool {
	return ref.Name == owner.obj.GetName() && ref.Kind == owner.kind.Kind &&
		ref.APIVersion == owner.kind.GroupVersion().String()
}

func (g *garbageCollector) sync(ctx context.Context, key string) (time.Time, error) {
	e, dependents := g.find(types.UID(key[strings.LastIndexByte(key, ' ')+1:]))
	if e == nil {
		return time.Time{}, nil
	}
	var err error
	switch {
	case orphansDependents(e.obj):
		err = g.orphan(ctx, e, dependents)
	case deletesDependents(e.obj):
		err = g.waitForDependents(ctx, e, dependents)
	case e.obj.GetDeletionTimestamp() == nil && len(e.obj.GetOwnerReferences()) > 0:
		err = g.collect(ctx, e, dependents)
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return time.Time{}, err
}

// find returns an object and its dependents.
func (g *garbageCollector) find(uid types.UID) (e *entry, dependents []*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.byUID[uid], g.state.dependentsOf(uid)
}

// orphan removes the owner references to an object, then its finalizer.
func (g *garbageCollector) orphan(ctx context.Context, owner *entry, dependents []*entry) error {
	for _, dependent := range dependents {
		if err := g.removeReferences(ctx, dependent, owner.obj.GetUID()); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return g.removeFinalizer(ctx, owner, metav1.FinalizerOrphanDependents)
}

// waitForDependents removes the finalizer of an object if no dependent blocks its deletion. Otherwise it enqueues the
// dependents, which are then deleted.
func (g *garbageCollector) waitForDependents(ctx context.Context, owner *entry, dependents []*entry) error {
	blocked := false
	g.mu.Lock()
	for _, dependent := range dependents {
		references := dependent.obj.GetOwnerReferences()
		if !isTrue(references[indexByUID(references, owner.obj.GetUID())].BlockOwnerDeletion) {
			continue
		}
		blocked = true
		if !deletesDependents(dependent.obj) {
			g.queue.add(task{collectorIndex, collectorKey(dependent)}, time.Now())
		}
	}
	g.mu.Unlock()
	if blocked {
		return nil
	}
	return g.removeFinalizer(ctx, owner, metav1.FinalizerDeleteDependents)
}

// collect deletes an object if all its owners are absent or wait for its deletion.
func (g *garbageCollector) collect(ctx context.Context, e *entry, dependents []*entry) error {
	solid, dangling, waiting, ok := g.classify(e)
	switch {
	case !ok:
		return nil
	case len(solid) > 0:
		if len(dangling)+len(waiting) == 0 {
			return nil
		}
		return g.removeReferences(ctx, e, append(dangling, waiting...)...)
	case len(waiting) > 0 && len(dependents) > 0:
		// Objects that own each other must not wait for each other.
		if slices.ContainsFunc(dependents, func(d *entry) bool { return deletesDependents(d.obj) }) {
			if err := g.unblockOwners(ctx, e); err != nil {
				return err
			}
		}
		return g.delete(ctx, e, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch finalizers := e.obj.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return g.delete(ctx, e, policy)
}

// classify returns the uids of the owners that exist, that do not exist, and that wait for the deletion of their
// dependents. ok is false if the kind of an owner is not served, or if it is namespaced and the object is not: then the
// real controller cannot look up the owner, and does nothing.
func (g *garbageCollector) classify(e *entry) (solid, dangling, waiting []types.UID, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ref := range e.obj.GetOwnerReferences() {
		k := g.state.referenced(ref)
		if k == nil || !k.ClusterScoped && e.obj.GetNamespace() == "" {
			return nil, nil, nil, false
		}
		key := types.NamespacedName{Name: ref.Name}
		if !k.ClusterScoped {
			key.Namespace = e.obj.GetNamespace()
		}
		owner := g.state.objects[resourceOf(k)][key]
		switch {
		case owner == nil || owner.GetUID() != ref.UID:
			dangling = append(dangling, ref.UID)
		case deletesDependents(owner):
			waiting = append(waiting, ref.UID)
		default:
			solid = append(solid, ref.UID)
		}
	}
	return solid, dangling, waiting, true
}

// delete deletes an object unless it has changed; if its owners are the same, a change does not matter.
func (g *garbageCollector) delete(ctx context.Context, e *entry, policy metav1.DeletionPropagation) error {
	uid, resourceVersion := e.obj.GetUID(), e.obj.GetResourceVersion()
	options := metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
	}
	return g.requests.delete(ctx, e.kind, e.obj, options)
}

// removeReferences removes the references to owners from an object.
func (g *garbageCollector) removeReferences(ctx context.Context, e *entry, owners ...types.UID) error {
	if e.kind.NewObject == nil { // without a strategic merge patch
		return g.setReferences(ctx, e, slices.DeleteFunc(slices.Clone(e.obj.GetOwnerReferences()),
			func(ref metav1.OwnerReference) bool {
				return slices.Contains(owners, ref.UID)
			}))
	}
	var references []map[string]any
	for _, uid := range owners {
		references = append(references, map[string]any{"$patch": "delete", "uid": uid})
	}
	patch := map[string]any{"metadata": map[string]any{"uid": e.obj.GetUID(), "ownerReferences": references}}
	return g.requests.patch(ctx, e.kind, e.obj, types.StrategicMergePatchType, patch)
}

// unblockOwners sets blockOwnerDeletion to false in all references of an object.
func (g *garbageCollector) unblockOwners(ctx context.Context, e *entry) error {
	references := slices.Clone(e.obj.GetOwnerReferences())
	for i := range references {
		references[i].BlockOwnerDeletion = new(bool)
	}
	return g.setReferences(ctx, e, references)
}

func (g *garbageCollector) setReferences(ctx context.Context, e *entry, references []metav1.OwnerReference) error {
	metadata := map[string]any{"resourceVersion": e.obj.GetResourceVersion(), "ownerReferences": references}
	return g.requests.patch(ctx, e.kind, e.obj, types.MergePatchType, map[string]any{"metadata": metadata})
}

func (g *garbageCollector) removeFinalizer(ctx context.Context, e *entry, finalizer string) error {
	rest := slices.DeleteFunc(slices.Clone(e.obj.GetFinalizers()), func(f string) bool { return f == finalizer })
	metadata := map[string]any{"resourceVersion": e.obj.GetResourceVersion(), "finalizers": rest}
	return g.requests.patch(ctx, e.kind, e.obj, types.MergePatchType, map[string]any{"metadata": metadata})
}

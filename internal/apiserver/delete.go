package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (r *request) delete() (*response, error) {
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	rec, deleted, err := r.deleteNamed(r.namespace, r.name, options)
	if err != nil {
		return nil, err
	}
	code := http.StatusOK
	if orphan := options.OrphanDependents; !deleted && orphan != nil && !*orphan { //nolint:staticcheck // clients still send it
		code = http.StatusAccepted
	}
	if !deleted || r.kind.rules.returnDeleted {
		return r.object(code, rec)
	}
	return r.status(code, &metav1.StatusDetails{
		Name: r.name, Group: r.kind.Group, Kind: r.kind.Resource, UID: rec.obj.GetUID(),
	})
}

// deleteNamed deletes an object, or marks it as being deleted if it has finalizers. It returns the last state of a deleted
// object, or the current state of one that remains. Server.mu is held.
func (r *request) deleteNamed(namespace, name string, options *metav1.DeleteOptions) (rec *record, deleted bool, err error) {
	existing := r.table.get(keyOf(namespace, name))
	if existing == nil {
		return nil, false, apierrors.NewNotFound(r.kind.groupResource(), name)
	}
	dryRun := len(options.DryRun) > 0
	if n, ok := existing.obj.(*corev1.Namespace); ok {
		if stays, err := r.terminateNamespace(existing, n, options, dryRun); stays != nil || err != nil {
			return stays, false, err
		}
	}
	if err := r.checkPreconditions(existing, options.Preconditions); err != nil {
		return nil, false, err
	}
	finalizers := finalizersFor(existing.obj.GetFinalizers(), options)
	if len(finalizers) == 0 {
		if dryRun {
			return existing, true, nil
		}
		return r.server.remove(r.table, existing), true, nil
	}
	obj := existing.obj.DeepCopyObject().(object)
	if !sameSet(finalizers, obj.GetFinalizers()) {
		obj.SetFinalizers(finalizers)
	}
	if obj.GetDeletionTimestamp() == nil {
		if obj.GetGeneration() > 0 {
			obj.SetGeneration(obj.GetGeneration() + 1)
		}
		deletion := now()
		obj.SetDeletionTimestamp(&deletion)
	}
	obj.SetDeletionGracePeriodSeconds(new(int64))
	rec, err = r.server.commit(r.table, obj, existing, dryRun)
	return rec, false, err
}

func (r *request) checkPreconditions(existing *record, want *metav1.Preconditions) error {
	if want == nil {
		return nil
	}
	resource := schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Kind} // the real server names the kind here
	if uid := existing.obj.GetUID(); want.UID != nil && *want.UID != uid {
		return apierrors.NewConflict(resource, existing.obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *want.UID, uid))
	}
	if version := existing.obj.GetResourceVersion(); want.ResourceVersion != nil && *want.ResourceVersion != version {
		return apierrors.NewConflict(resource, existing.obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the "+
			"ResourceVersion in record (%s). The object might have been modified", *want.ResourceVersion, version))
	}
	return nil
}

// finalizersFor returns the finalizers of an object that is deleted with options: the one of the garbage collector is
// added or removed.
func finalizersFor(current []string, options *metav1.DeleteOptions) []string {
	orphan := slices.Contains(current, metav1.FinalizerOrphanDependents)
	foreground := slices.Contains(current, metav1.FinalizerDeleteDependents)
	if orphan && foreground { // the first one counts
		orphan = slices.Index(current, metav1.FinalizerOrphanDependents) < slices.Index(current, metav1.FinalizerDeleteDependents)
		foreground = !orphan
	}
	if o := options.OrphanDependents; o != nil { //nolint:staticcheck // clients still send it
		orphan, foreground = *o, false
	} else if policy := options.PropagationPolicy; policy != nil {
		orphan, foreground = *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	}
	finalizers := withoutGarbageCollection(current)
	if orphan {
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	}
	return finalizers
}

func sameSet(a, b []string) bool {
	includes := func(all, some []string) bool {
		return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
	}
	return includes(a, b) && includes(b, a)
}

// terminateNamespace begins the deletion of a namespace. It returns the namespace unless it can be removed now: it is being
// deleted and has no finalizers in its spec.
func (r *request) terminateNamespace(existing *record, n *corev1.Namespace, options *metav1.DeleteOptions, dryRun bool) (*record, error) {
	if slices.Contains([]string{"default", "kube-system", "kube-public"}, n.Name) {
		return nil, apierrors.NewForbidden(r.kind.groupResource(), n.Name, errors.New("this namespace may not be deleted"))
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != n.UID {
			return nil, apierrors.NewConflict(r.kind.groupResource(), n.Name, precondition("UID", *p.UID, n.UID))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != n.ResourceVersion {
			return nil, apierrors.NewConflict(r.kind.groupResource(), n.Name, precondition("ResourceVersion", *p.ResourceVersion, n.ResourceVersion))
		}
	}
	if n.DeletionTimestamp != nil {
		if len(n.Spec.Finalizers) > 0 {
			return existing, nil
		}
		return nil, nil
	}
	n = n.DeepCopy()
	deletion := now()
	n.DeletionTimestamp = &deletion
	n.Status.Phase = corev1.NamespaceTerminating
	if finalizers := namespaceFinalizers(n.Finalizers, options); !sameSet(finalizers, n.Finalizers) {
		n.Finalizers = finalizers
	}
	return r.server.commit(r.table, n, existing, dryRun)
}

// namespaceFinalizers is finalizersFor for a namespace, where orphanDependents=false means foreground deletion, and
// finalizers of both policies can stay. The result is sorted; the order of the real server is random.
func namespaceFinalizers(current []string, options *metav1.DeleteOptions) []string {
	orphan := slices.Contains(current, metav1.FinalizerOrphanDependents)
	foreground := slices.Contains(current, metav1.FinalizerDeleteDependents)
	if o := options.OrphanDependents; o != nil { //nolint:staticcheck // clients still send it
		orphan, foreground = *o, !*o
	} else if policy := options.PropagationPolicy; policy != nil {
		orphan, foreground = *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	}
	finalizers := withoutGarbageCollection(current)
	if orphan {
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	}
	slices.Sort(finalizers)
	return slices.Compact(finalizers)
}

// withoutGarbageCollection returns a copy of finalizers without those of the garbage collector.
func withoutGarbageCollection(finalizers []string) []string {
	var rest []string
	for _, name := range finalizers {
		if name != metav1.FinalizerOrphanDependents && name != metav1.FinalizerDeleteDependents {
			rest = append(rest, name)
		}
	}
	return rest
}

// deleteCollection deletes the selected objects, and responds with the list of them as they were.
func (r *request) deleteCollection() (*response, error) {
	listOptions, selected, err := r.listOptions(false)
	if err != nil {
		return nil, err
	}
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	records, listMeta, err := r.selectRecords(listOptions, selected)
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		_, _, err := r.deleteNamed(rec.obj.GetNamespace(), rec.obj.GetName(), options)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return r.list(records, listMeta)
}

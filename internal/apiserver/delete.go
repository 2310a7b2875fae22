package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

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
	r.warnOfOrphans(options)
	rec, deleted, err := r.deleteNamed(r.namespace, r.name, options)
	if err != nil {
		return nil, err
	}
	code := http.StatusOK
	//nolint:staticcheck // clients still send it
	if orphan := options.OrphanDependents; !deleted && orphan != nil && !*orphan {
		code = http.StatusAccepted
	}
	if empty := rec.obj.GetName() == ""; empty || !deleted || r.kind.Rules.ReturnDeleted {
		return r.object(code, rec)
	}
	return r.status(code, &metav1.StatusDetails{
		Name: r.name, Group: r.kind.Group, Kind: r.kind.Resource, UID: rec.obj.GetUID(),
	})
}

// warnOfOrphans warns if the kind decides what happens to the dependents.
func (r *request) warnOfOrphans(options *metav1.DeleteOptions) {
	//nolint:staticcheck // clients still send it
	if text := r.kind.Rules.OrphanWarning; text != "" && options.PropagationPolicy == nil &&
		options.OrphanDependents == nil {
		r.warn(text)
	}
}

// deleteNamed deletes an object, or marks it as being deleted if it has finalizers or a grace period. It returns the
// last state of a deleted object, or the current state of one that remains.
func (r *request) deleteNamed(
	namespace, name string, options *metav1.DeleteOptions,
) (rec *record, deleted bool, err error) {
	for {
		rec, deleted, err = r.tryDelete(namespace, name, options.DeepCopy())
		if !errors.Is(err, errChanged) {
			return rec, deleted, err
		}
	}
}

// tryDelete is one attempt of deleteNamed. It may change options. Error: errChanged.
func (r *request) tryDelete(
	namespace, name string, options *metav1.DeleteOptions,
) (rec *record, deleted bool, err error) {
	stored := r.find(namespace, name)
	if stored == nil {
		return nil, false, apierrors.NewNotFound(r.kind.groupResource(), name)
	}
	existing, err := stored.current(r.kind)
	if err != nil {
		return nil, false, err
	}
	dryRun := len(options.DryRun) > 0
	if remains, err := r.beginTermination(existing, options); remains || err != nil {
		return stored, false, err
	}
	if rec, err := r.terminate(stored, existing.obj, options, dryRun); rec != nil || err != nil {
		return rec, false, err
	}
	if err := r.checkPreconditions(existing, options.Preconditions); err != nil {
		return nil, false, err
	}
	obj := existing.obj.DeepCopyObject().(Object)
	graceful, pending := r.beginDeletion(obj, options)
	if pending {
		return existing, false, nil
	}
	if err := r.admitDeletion(existing.obj, options); err != nil {
		return nil, false, err
	}
	if finalizers := r.kind.finalizersFor(obj.GetFinalizers(), options); !sameSet(finalizers, obj.GetFinalizers()) {
		obj.SetFinalizers(finalizers)
	}
	if !graceful {
		if len(obj.GetFinalizers()) == 0 {
			return r.deleteUnfinalized(stored, existing, options)
		}
		markAsDeleting(obj)
	}
	rec, err = r.commit(obj, stored, dryRun)
	if err != nil || len(obj.GetFinalizers()) > 0 || *obj.GetDeletionGracePeriodSeconds() > 0 {
		return rec, false, err
	}
	if dryRun {
		return rec, true, nil
	}
	// A grace period of 0: watches see the update before the deletion, and both are reviewed.
	select {
	case <-time.After(DeletionStep):
	case <-r.Context().Done():
	}
	if err := r.admitDeletion(rec.obj, options); err != nil {
		return nil, false, err
	}
	last, _, err := r.deleteNow(rec, dryRun)
	if errors.Is(err, errChanged) && r.find(namespace, name) == nil { // another request has deleted it meanwhile
		return rec, true, nil
	}
	return last, true, err
}

// deleteUnfinalized deletes an object without a grace period whose last finalizers, if it has any, the request removes.
func (r *request) deleteUnfinalized(stored, existing *record, options *metav1.DeleteOptions) (*record, bool, error) {
	dryRun := len(options.DryRun) > 0
	if len(existing.obj.GetFinalizers()) == 0 {
		return r.deleteNow(stored, dryRun)
	}
	// After it has removed the last finalizer, the real server goes on with an empty object.
	if dryRun {
		return &record{kind: r.kind, key: existing.key, obj: r.kind.blank()}, true, nil
	}
	if p := options.Preconditions; p != nil && p.ResourceVersion != nil {
		problem := precondition("ResourceVersion", "", existing.obj.GetResourceVersion())
		return nil, false, r.storedPrecondition(existing.obj.GetNamespace(), existing.obj.GetName(), problem, dryRun)
	}
	// The real server updates the object before it deletes it.
	if err := r.admitDeletion(existing.obj, options); err != nil {
		return nil, false, err
	}
	return r.deleteNow(stored, dryRun)
}

func (r *request) deleteNow(stored *record, dryRun bool) (*record, bool, error) {
	if dryRun {
		return stored, true, nil
	}
	last, err := r.remove(stored)
	return last, true, err
}

// beginDeletion gives an object with a grace period a deletion timestamp in the future, or shortens the period of one
// that has it already. graceful is true if obj has a grace period, which may be 0. pending is true if the object is
// being deleted already, and the deletion changes nothing.
func (r *request) beginDeletion(obj Object, options *metav1.DeleteOptions) (graceful, pending bool) {
	if seconds := options.GracePeriodSeconds; seconds != nil && *seconds < 0 {
		options.GracePeriodSeconds = new(int64(1))
	}
	if r.kind.Rules.GracePeriod == nil {
		return false, false
	}
	deletion, period := obj.GetDeletionTimestamp(), obj.GetDeletionGracePeriodSeconds()
	if deletion == nil {
		seconds := r.kind.Rules.GracePeriod(obj, options.GracePeriodSeconds)
		options.GracePeriodSeconds = &seconds
		at := metav1.NewTime(now().Add(time.Duration(seconds) * time.Second))
		obj.SetDeletionTimestamp(&at)
		obj.SetDeletionGracePeriodSeconds(&seconds)
		if obj.GetGeneration() > 0 {
			obj.SetGeneration(obj.GetGeneration() + 1)
		}
		return true, false
	}
	if period == nil || *period == 0 {
		return false, false
	}
	if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *period {
		return false, true
	}
	seconds := *options.GracePeriodSeconds
	at := metav1.NewTime(deletion.Add(time.Duration(seconds-*period) * time.Second))
	if current := now(); at.Before(&current) {
		at = current
		seconds = min(seconds, 1)
	}
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	return true, false
}

// markAsDeleting marks an object with finalizers as being deleted, without a grace period.
func markAsDeleting(obj Object) {
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	current := now()
	if at := obj.GetDeletionTimestamp(); at == nil || current.Before(at) {
		obj.SetDeletionTimestamp(&current)
	}
	obj.SetDeletionGracePeriodSeconds(new(int64))
}

// beginTermination checks a deletion of a kind that is not deleted at once, before it is reviewed, and adds the uid of
// the object to the preconditions. stays is true if the deletion changes nothing.
func (r *request) beginTermination(existing *record, options *metav1.DeleteOptions) (remains bool, err error) {
	n, isNamespace := existing.obj.(*corev1.Namespace)
	if !isNamespace && r.kind.Rules.Terminate == nil {
		return false, nil
	}
	if err := r.checkTerminationPreconditions(existing.obj, options.Preconditions); err != nil {
		return false, err
	}
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.UID = new(existing.obj.GetUID())
	if !isNamespace {
		return false, nil
	}
	if n.DeletionTimestamp != nil && len(n.Spec.Finalizers) > 0 {
		return true, nil
	}
	if slices.Contains([]string{"default", "kube-system", "kube-public"}, n.Name) {
		return false,
			apierrors.NewForbidden(r.kind.groupResource(), n.Name, errors.New("this namespace may not be deleted"))
	}
	return false, nil
}

// terminate begins the deletion of an object that stays until its finalizers are removed. existing is the stored object
// in the form of the request's kind. It returns nil for other objects, and for those that are being deleted already.
func (r *request) terminate(
	stored *record, existing Object, options *metav1.DeleteOptions, dryRun bool,
) (*record, error) {
	n, isNamespace := existing.(*corev1.Namespace)
	if !isNamespace && r.kind.Rules.Terminate == nil || existing.GetDeletionTimestamp() != nil {
		return nil, nil //nolint:nilnil // another object
	}
	if err := r.admitDeletion(existing, options); err != nil {
		return nil, err
	}
	if isNamespace {
		return r.terminateNamespace(stored, n, options, dryRun)
	}
	obj := existing.DeepCopyObject().(Object)
	deletion := now()
	obj.SetDeletionTimestamp(&deletion)
	r.kind.Rules.Terminate(obj)
	return r.commit(obj, stored, dryRun)
}

// checkTerminationPreconditions is checkPreconditions with the messages for kinds that are not deleted at once.
func (r *request) checkTerminationPreconditions(obj Object, want *metav1.Preconditions) error {
	if want == nil {
		return nil
	}
	if want.UID != nil && *want.UID != obj.GetUID() {
		return apierrors.NewConflict(r.kind.groupResource(), obj.GetName(),
			precondition("UID", *want.UID, obj.GetUID()))
	}
	if want.ResourceVersion != nil && *want.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(r.kind.groupResource(), obj.GetName(),
			precondition("ResourceVersion", *want.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

func (r *request) checkPreconditions(existing *record, want *metav1.Preconditions) error {
	if want == nil {
		return nil
	}
	// the real server names the kind here
	resource := schema.GroupResource{Group: r.kind.storage().Group, Resource: r.kind.Kind}
	if uid := existing.obj.GetUID(); want.UID != nil && *want.UID != uid {
		return apierrors.NewConflict(resource, existing.obj.GetName(),
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", *want.UID, uid))
	}
	if version := existing.obj.GetResourceVersion(); want.ResourceVersion != nil && *want.ResourceVersion != version {
		return apierrors.NewConflict(resource, existing.obj.GetName(),
			fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the "+
				"ResourceVersion in record (%s). The object might have been modified", *want.ResourceVersion, version))
	}
	return nil
}

// finalizersFor returns the finalizers of an object that is deleted with options: the one of the garbage collector is
// added or removed.
func (k *Kind) finalizersFor(current []string, options *metav1.DeleteOptions) []string {
	if k.Rules.NoGarbageCollection {
		return withoutGarbageCollection(current)
	}
	orphan := slices.Contains(current, metav1.FinalizerOrphanDependents)
	foreground := slices.Contains(current, metav1.FinalizerDeleteDependents)
	if orphan && foreground { // the first one counts
		orphan = slices.Index(current, metav1.FinalizerOrphanDependents) < slices.Index(current,
			metav1.FinalizerDeleteDependents)
		foreground = !orphan
	}
	if o := options.OrphanDependents; o != nil { //nolint:staticcheck // clients still send it
		orphan, foreground = *o, false
	} else if policy := options.PropagationPolicy; policy != nil {
		orphan, foreground = *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	} else if k.Rules.OrphanDependents && !foreground {
		orphan = true
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

// terminateNamespace begins the deletion of a namespace. It returns the namespace unless it can be removed now: it is
// being deleted and has no finalizers in its spec.
func (r *request) terminateNamespace(
	stored *record, n *corev1.Namespace, options *metav1.DeleteOptions, dryRun bool,
) (*record, error) {
	n = n.DeepCopy()
	deletion := now()
	n.DeletionTimestamp = &deletion
	n.Status.Phase = corev1.NamespaceTerminating
	if finalizers := namespaceFinalizers(n.Finalizers, options); !sameSet(finalizers, n.Finalizers) {
		n.Finalizers = finalizers
	}
	return r.commit(n, stored, dryRun)
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

// deleteCollection deletes the selected objects, and responds with the list of them as they were. Like the real server,
// it lists in pages, and a page of a version without a match has exactly this version.
func (r *request) deleteCollection() (*response, error) {
	listOptions, selected, err := r.listOptions(false)
	if err != nil {
		return nil, err
	}
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	r.warnOfOrphans(options)
	if version, _ := parseVersion(listOptions.ResourceVersion); version > 0 && listOptions.Limit == 0 &&
		listOptions.ResourceVersionMatch == "" && selected.name == "" {
		listOptions.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
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

package apiserver

import (
	"errors"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (r *request) update() (*response, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	options, err := r.updateOptions()
	if err != nil {
		return nil, err
	}
	media, err := contentType(r.Header)
	if err != nil {
		return nil, err
	}
	part := r.ofBody()
	obj, err := part.decodeBody(body, media, options)
	if err != nil {
		return nil, err
	}
	if err := r.setNamespace(obj); err != nil {
		return nil, err
	}
	if err := r.checkName(obj); err != nil {
		return nil, err
	}
	r.removeDuplicateOwners(obj, false)
	return r.replace(obj.GetUID(), options, func(current Object) (Object, error) {
		return r.changeBody(current, func(current Object) (Object, error) {
			obj := part.manage(current, obj.DeepCopyObject().(Object), options) // a copy for each attempt
			if err := part.mutate(obj, current, options); err != nil {
				return nil, err
			}
			r.removeDuplicateOwners(obj, true)
			return obj, nil
		})
	})
}

// replace replaces the object that the request names by what change makes of it, and responds with the stored object.
// uid is a precondition, or empty. change is called again if another request changes the object in the meantime.
func (r *request) replace(
	uid types.UID, options writeOptions, change func(current Object) (Object, error),
) (*response, error) {
	for {
		warnings := len(*r.warnings)
		res, err := r.tryReplace(uid, options, change)
		if !errors.Is(err, errChanged) {
			return res, err
		}
		*r.warnings = (*r.warnings)[:warnings]
	}
}

// tryReplace is one attempt of replace. Error: errChanged.
func (r *request) tryReplace(
	uid types.UID, options writeOptions, change func(current Object) (Object, error),
) (*response, error) {
	stored := r.find(r.namespace, r.name)
	if stored == nil {
		return r.createOnUpdate(uid, options, change)
	}
	existing, err := stored.as(r.kind)
	if err != nil {
		return nil, err
	}
	if uid != "" && uid != existing.obj.GetUID() {
		return nil, r.storedPrecondition(r.namespace, r.name, precondition("UID", uid, existing.obj.GetUID()),
			options.dryRun)
	}
	obj, err := change(existing.obj)
	if err != nil {
		return nil, err
	}
	if err := r.checkNamespace(false, r.name); err != nil {
		return nil, err
	}
	if err := r.checkVersion(obj, existing); err != nil {
		return nil, err
	}
	release, err := r.allocate(obj, existing.obj, options)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := r.prepareUpdate(obj, existing.obj); err != nil {
		return nil, err
	}
	if r.kind.Rules.Warnings != nil && (r.subresource == "" || r.scaled()) {
		r.warn(r.kind.Rules.Warnings(obj, existing.obj)...)
	}
	if r.kind.Rules.Canonicalize != nil {
		r.kind.Rules.Canonicalize(obj)
	}
	keepTimes(obj, existing.obj)
	if err := r.admit(obj, existing.obj, options); err != nil {
		return nil, err
	}
	if deletedByUpdate(obj, existing.obj) {
		if !options.dryRun {
			if _, err := r.remove(stored); err != nil {
				return nil, err
			}
		}
		// The response has the object of the request, with the version that it had.
		return r.object(http.StatusOK, &record{kind: r.kind, key: existing.key, obj: obj})
	}
	rec, err := r.commit(obj, stored, options.dryRun)
	if err != nil {
		return nil, err
	}
	return r.object(http.StatusOK, rec)
}

// createOnUpdate creates the object of an update, if the update may do that.
func (r *request) createOnUpdate(
	uid types.UID, options writeOptions, change func(Object) (Object, error),
) (*response, error) {
	switch {
	case r.kind.CreateOnUpdate && (r.applies() || r.Method == http.MethodPut): // by an update of the status, too
	case r.applies() && r.subresource == "":
	default:
		return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	if uid != "" {
		return nil, r.storedPrecondition(r.namespace, r.name, precondition("UID", uid, ""), options.dryRun)
	}
	obj, err := change(nil)
	if err != nil {
		return nil, err
	}
	path := Path{Resource: r.resource, Namespace: r.namespace, Name: r.name, Subresource: r.subresource}
	if err := r.server.authorize(r.user, r.Request, path, "create"); err != nil {
		return nil, err
	}
	if err := r.checkNamespace(true, r.name); err != nil {
		return nil, err
	}
	rec, err := r.storeNamed(obj, options)
	if err != nil {
		return nil, err
	}
	return r.object(http.StatusCreated, rec)
}

// checkVersion returns an error if an update is for another version than the current one. Without a version it gets the
// current one, if the kind allows that.
func (r *request) checkVersion(obj Object, existing *record) error {
	text := obj.GetResourceVersion()
	version := uint64(0)
	if text != "" {
		var err error
		if version, err = strconv.ParseUint(text, 10, 64); err != nil {
			return err
		}
	}
	switch {
	case version == existing.version:
		return nil
	case version == 0 && r.kind.UnconditionalUpdate:
		obj.SetResourceVersion(existing.obj.GetResourceVersion())
		return nil
	case version == 0:
		kind := schema.GroupKind{Group: r.kind.Group, Kind: r.kind.Resource}
		return apierrors.NewInvalid(kind, r.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update"),
		})
	}
	return apierrors.NewConflict(r.kind.groupResource(), r.name, errors.New(conflictMessage))
}

// prepareUpdate normalizes and validates an object that is to replace old.
func (r *request) prepareUpdate(obj, old Object) error {
	if err := r.setNamespace(obj); err != nil {
		return err
	}
	obj.SetGeneration(old.GetGeneration())
	rules := r.kind.Rules
	switch r.subresource {
	case "", scaleSubresource:
		if err := r.kind.prepareContent(obj, old, false); err != nil {
			return err
		}
		if rules.Prepare != nil {
			rules.Prepare(obj, old)
		}
	case "status":
		if err := r.kind.prepareContent(obj, old, true); err != nil {
			return err
		}
		if rules.PrepareStatus != nil {
			rules.PrepareStatus(obj, old)
		}
	case "finalize":
		copyField(obj, old, "Status")
	default:
		rules.PrepareSubresource(r.subresource, obj, old)
	}
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		obj.SetCreationTimestamp(created)
	}
	if deleted := old.GetDeletionTimestamp(); !deleted.IsZero() {
		obj.SetDeletionTimestamp(deleted)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(grace)
	}
	errs := append(ValidateMetadata(obj, !r.kind.ClusterScoped, pathSegment), ValidateMetadataUpdate(obj, old)...)
	if errs = append(errs, r.validate(obj, old)...); len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	return nil
}

// deletedByUpdate reports whether an update removes the last finalizer of an object that is being deleted.
func deletedByUpdate(obj, old Object) bool {
	if n, ok := obj.(*corev1.Namespace); ok && len(n.Spec.Finalizers) > 0 {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return len(obj.GetFinalizers()) == 0 && old.GetDeletionTimestamp() != nil && (grace == nil || *grace == 0)
}

func terminating(obj Object) bool {
	n, ok := obj.(*corev1.Namespace)
	return ok && n.Status.Phase == corev1.NamespaceTerminating
}

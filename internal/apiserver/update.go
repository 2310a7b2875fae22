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
	obj, err := r.decodeBody(body, media, options)
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
	return r.replace(obj.GetUID(), options, func(current object) (object, error) {
		return r.manage(current, obj, options), nil
	})
}

// replace replaces the object that the request names by what change makes of it, and responds with the stored object. uid
// is a precondition, or empty.
func (r *request) replace(uid types.UID, options writeOptions, change func(current object) (object, error)) (*response, error) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	existing := r.table.get(keyOf(r.namespace, r.name))
	if existing == nil {
		if r.subresource != "" || !r.applies() && (!r.kind.CreateOnUpdate || r.Method == http.MethodPatch) {
			return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
		}
		return r.createOnUpdate(uid, options, change)
	}
	if uid != "" && uid != existing.obj.GetUID() {
		return nil, r.storedPrecondition(uid, existing.obj.GetUID(), options)
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
	if err := r.prepareUpdate(obj, existing.obj); err != nil {
		return nil, err
	}
	if r.kind.rules.warnings != nil && r.subresource == "" {
		r.warn(r.kind.rules.warnings(obj, existing.obj)...)
	}
	if r.kind.rules.canonicalize != nil {
		r.kind.rules.canonicalize(obj)
	}
	keepTimes(obj, existing.obj)
	if deletedByUpdate(obj, existing.obj) {
		if !options.dryRun {
			r.server.remove(r.table, existing)
		}
		// The response has the object of the request, with the version that it had.
		return r.object(http.StatusOK, &record{kind: r.kind, key: existing.key, obj: obj})
	}
	rec, err := r.server.commit(r.table, obj, existing, options.dryRun)
	if err != nil {
		return nil, err
	}
	return r.object(http.StatusOK, rec)
}

// createOnUpdate creates the object of an update. Server.mu is held.
func (r *request) createOnUpdate(uid types.UID, options writeOptions, change func(object) (object, error)) (*response, error) {
	if uid != "" {
		return nil, r.storedPrecondition(uid, "", options)
	}
	obj, err := change(nil)
	if err != nil {
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
func (r *request) checkVersion(obj object, existing *record) error {
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
func (r *request) prepareUpdate(obj, old object) error {
	if err := r.setNamespace(obj); err != nil {
		return err
	}
	obj.SetGeneration(old.GetGeneration())
	rules := r.kind.rules
	switch r.subresource {
	case "":
		if err := r.kind.prepareContent(obj, old, false); err != nil {
			return err
		}
		if rules.prepare != nil {
			rules.prepare(obj, old)
		}
	case "status":
		if err := r.kind.prepareContent(obj, old, true); err != nil {
			return err
		}
	case "finalize":
		copyField(obj, old, "Status")
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
	errs := append(validateMetadata(obj, !r.kind.ClusterScoped, pathSegment), validateMetadataUpdate(obj, old)...)
	switch {
	case r.subresource != "" && rules.validateSubresource != nil:
		errs = append(errs, rules.validateSubresource(r.subresource, obj, old)...)
	case rules.validate != nil:
		errs = append(errs, rules.validate(obj, old)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.kind.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// deletedByUpdate reports whether an update removes the last finalizer of an object that is being deleted.
func deletedByUpdate(obj, old object) bool {
	if n, ok := obj.(*corev1.Namespace); ok && len(n.Spec.Finalizers) > 0 {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return len(obj.GetFinalizers()) == 0 && old.GetDeletionTimestamp() != nil && (grace == nil || *grace == 0)
}

func terminating(obj object) bool {
	n, ok := obj.(*corev1.Namespace)
	return ok && n.Status.Phase == corev1.NamespaceTerminating
}

func (s *Server) namespaceKind() *Kind {
	if t := s.namespaceTable(); t != nil {
		return t.kind
	}
	return nil
}

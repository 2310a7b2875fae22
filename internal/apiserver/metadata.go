package apiserver

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateMetadata validates the metadata of an object that is to be stored.
func ValidateMetadata(obj Object, namespaced bool, name validation.ValidateNameFunc) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessor(validated(obj), namespaced, name, field.NewPath("metadata"))
	return ownerErrors(errs)
}

// ownerErrors gives the errors of owner references the text of serverVersion: that of the library is newer.
func ownerErrors(errs field.ErrorList) field.ErrorList {
	const owners = "metadata.ownerReferences"
	for _, err := range errs {
		index, isOwner := strings.CutPrefix(err.Field, owners+"[")
		if !isOwner {
			continue
		}
		_, name, _ := strings.Cut(index, "]")
		err.Field = owners + name
		switch name {
		case "": // a kind that owns nothing
			continue
		case ".apiVersion":
			err.Detail = "version must not be empty"
		default:
			err.Detail = "must not be empty"
		}
		if err.Type != field.ErrorTypeInvalid {
			err.Type, err.BadValue = field.ErrorTypeInvalid, ""
		}
	}
	return errs
}

// ValidateMetadataUpdate validates changes of metadata. Without an old object there are none.
func ValidateMetadataUpdate(obj, old Object) field.ErrorList {
	if old == nil {
		return nil
	}
	return ownerErrors(validation.ValidateObjectMetaAccessorUpdate(validated(obj), old, field.NewPath("metadata")))
}

// validated returns the metadata of an object for validation.
func validated(obj Object) metav1.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return customMetadata{u}
	}
	return obj
}

// customMetadata is the metadata of a custom resource. Conversion of the complete managed fields would take most of the
// time of the validation, which does not read their times and fields.
type customMetadata struct{ *unstructured.Unstructured }

func (m customMetadata) GetManagedFields() []metav1.ManagedFieldsEntry {
	items, _, _ := unstructured.NestedFieldNoCopy(m.Object, "metadata", "managedFields")
	entries, _ := items.([]any)
	managed := make([]metav1.ManagedFieldsEntry, len(entries))
	for i, item := range entries {
		entry, _ := item.(map[string]any)
		text := func(name string) string {
			value, _ := entry[name].(string)
			return value
		}
		managed[i] = metav1.ManagedFieldsEntry{
			Manager: text("manager"), Operation: metav1.ManagedFieldsOperationType(text("operation")),
			APIVersion: text("apiVersion"),
			FieldsType: text("fieldsType"), Subresource: text("subresource"),
		}
	}
	return managed
}

// ValidateCoreMetadata is ValidateMetadata for kinds of the core group, which allow fewer finalizers.
func ValidateCoreMetadata(obj Object, namespaced bool, name validation.ValidateNameFunc) field.ErrorList {
	return append(ValidateMetadata(obj, namespaced, name), validateCoreFinalizers(obj)...)
}

// ValidateCoreMetadataUpdate is ValidateMetadataUpdate for kinds of the core group.
func ValidateCoreMetadataUpdate(obj, old Object) field.ErrorList {
	if old == nil {
		return nil
	}
	return append(ValidateMetadataUpdate(obj, old), validateCoreFinalizers(obj)...)
}

func validateCoreFinalizers(obj Object) field.ErrorList {
	var errs field.ErrorList
	for i, name := range obj.GetFinalizers() {
		errs = append(errs, validateQualifiedFinalizer(name, field.NewPath("metadata", "finalizers").Index(i))...)
	}
	return errs
}

// validateQualifiedFinalizer checks that a finalizer has a domain, unless it is one of Kubernetes.
func validateQualifiedFinalizer(name string, path *field.Path) field.ErrorList {
	standard := []string{
		string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents,
	}
	if strings.Contains(name, "/") || slices.Contains(standard, name) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it "+
		"fully qualified")}
}

// wipeSystemFields removes what only the server may set in a new object.
func wipeSystemFields(obj Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// setNamespace gives an object the namespace of the request. Error: it names another one.
func (r *request) setNamespace(obj Object) error {
	switch {
	case obj.GetNamespace() == r.namespace:
	case obj.GetNamespace() == "" || r.namespace == "":
		obj.SetNamespace(r.namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on " +
			"the request")
	}
	return nil
}

// checkName returns an error if an object has another name than the path.
func (r *request) checkName(obj Object) error {
	switch name := obj.GetName(); name {
	case r.name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: "+
			"name must be provided", r.name))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on "+
			"the URL (%s)", name, r.name))
	}
}

// removeDuplicateOwners removes equal owner references. afterAdmission selects the text of the warning.
func (r *request) removeDuplicateOwners(obj Object, afterAdmission bool) {
	refs := obj.GetOwnerReferences()
	var unique []metav1.OwnerReference
	var duplicates []string
	seen := map[types.UID]bool{}
	for _, ref := range refs {
		if seen[ref.UID] && containsOwner(unique, ref) {
			duplicates = append(duplicates, string(ref.UID))
			continue
		}
		seen[ref.UID] = true
		unique = append(unique, ref)
	}
	if len(duplicates) == 0 {
		return
	}
	after := ""
	if afterAdmission {
		after = " after mutating admission happens"
	}
	r.warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner "+
		"references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s",
		after, strings.Join(duplicates, ", ")))
	obj.SetOwnerReferences(unique)
}

func containsOwner(refs []metav1.OwnerReference, ref metav1.OwnerReference) bool {
	for i := range refs {
		if equality.Semantic.DeepEqual(refs[i], ref) {
			return true
		}
	}
	return false
}

// warn adds a warning, once.
func (r *request) warn(texts ...string) {
	for _, text := range texts {
		if text != "" && !slices.Contains(*r.warnings, text) {
			*r.warnings = append(*r.warnings, text)
		}
	}
}

// checkNamespace returns an error if objects cannot be written because of their namespace: it does not exist, or for a
// new object, it is being deleted.
func (r *request) checkNamespace(creating bool, name string) error {
	if creating && r.kind.CheckCreate != nil {
		if err := r.kind.CheckCreate(r.server); err != nil {
			return apierrors.NewForbidden(r.kind.groupResource(), name, err)
		}
	}
	namespaces := schema.GroupResource{Resource: "namespaces"}
	// The kind of a request for a scale is in namespaces, also if the object is not.
	if r.kind.ClusterScoped || r.kind.review != nil || r.namespace == "" || r.server.config.NamespacesExist ||
		r.serving.paths[resourcePath{"", "v1", "namespaces"}] == nil {
		return nil
	}
	rec := r.server.find(namespaces, r.namespace)
	if rec == nil {
		return apierrors.NewNotFound(namespaces, r.namespace)
	}
	if !creating || !terminating(rec.obj) {
		return nil
	}
	err := apierrors.NewForbidden(r.kind.groupResource(), name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", r.namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", r.namespace),
		Field: "metadata.namespace",
	})
	return err
}

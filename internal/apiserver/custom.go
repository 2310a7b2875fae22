package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

func customRules(gvk schema.GroupVersionKind) Rules {
	return Rules{
		Validate: func(obj, old Object) field.ErrorList {
			u := obj.(*unstructured.Unstructured)
			var errs field.ErrorList
			if u.GetKind() != gvk.Kind {
				errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), "must be "+gvk.Kind))
			}
			if version := gvk.GroupVersion().String(); u.GetAPIVersion() != version {
				errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), "must be "+version))
			}
			switch {
			case len(errs) > 0:
				return errs
			case old == nil:
				return ValidateMetadata(u, u.GetNamespace() != "", validation.NameIsDNSSubdomain)
			}
			return ValidateMetadataUpdate(u, old)
		},
		Stored: func(obj Object) bool {
			u := obj.(*unstructured.Unstructured)
			integers(u.Object)
			_, _ = coerceMetadata(u, false) // an apply can leave null in it; its types are valid, because the object is
			return false
		},
		Warnings: func(obj, old Object) []string {
			var before []string
			if old != nil {
				before = old.GetFinalizers()
			}
			return finalizerWarnings(obj.GetFinalizers(), before)
		},
	}
}

// integers replaces the floating-point numbers in value that a reader of their JSON decodes as integers.
func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			switch element.(type) {
			case float64:
				v[key] = integers(element)
			case map[string]any, []any:
				integers(element)
			}
		}
	case []any:
		for i, element := range v {
			if _, ok := element.(float64); ok {
				v[i] = integers(element)
				continue
			}
			integers(element)
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v)
		}
	}
	return value
}

// finalizerWarnings returns warnings about finalizers without a domain that an object did not have before.
func finalizerWarnings(finalizers, before []string) []string {
	standard := []string{
		metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents,
		string(corev1.FinalizerKubernetes),
	}
	var warnings []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(finalizers))) {
		if slices.Contains(before, name) {
			continue
		}
		for _, message := range utilvalidation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, message))
		}
		if strings.Contains(name, "/") || slices.Contains(standard, name) {
			continue
		}
		what := "prefer a domain-qualified finalizer name"
		if strings.Contains(name, ".") {
			what += " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s to avoid accidental conflicts with "+
			"other finalizer writers", name, what))
	}
	return warnings
}

// coerce gives a decoded custom resource the form of its schema. Unknown fields are removed, and with strict they are
// reported.
func (k *Kind) coerce(u *unstructured.Unstructured, strict bool) (unknown []error, err error) {
	if unknown, err = coerceMetadata(u, strict); err != nil || k.Rules.Coerce == nil {
		return unknown, err
	}
	other, err := k.Rules.Coerce(u, strict)
	return append(unknown, other...), err
}

// prune removes what admission has added to a custom resource and its schema does not have. Fields of metadata with a
// wrong type are removed too. The real server does that after validation, which sees them.
func (k *Kind) prune(u *unstructured.Unstructured) error {
	if metadata, ok := u.Object["metadata"].(map[string]any); ok && !isObjectMeta(metadata) {
		for key, value := range metadata {
			text, err := json.Marshal(map[string]any{key: value})
			if err == nil {
				err = kjson.UnmarshalCaseSensitivePreserveInts(text, &metav1.ObjectMeta{})
			}
			if err != nil {
				delete(metadata, key)
			}
		}
	}
	_, err := k.coerce(u, false)
	return err
}

// coerceMetadata gives the metadata of a custom resource the form of ObjectMeta: unknown fields are removed, and
// reported as strict errors. Error: a field with the wrong type.
func coerceMetadata(u *unstructured.Unstructured, strict bool) (strictErrs []error, err error) {
	metadata, exists := u.Object["metadata"]
	if !exists || isObjectMeta(metadata) {
		return nil, nil
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	var m metav1.ObjectMeta
	if strict {
		unknown, err := kjson.UnmarshalStrict(text, &m)
		if err != nil {
			return nil, err
		}
		for _, e := range unknown {
			if f := kjson.FieldError(nil); errors.As(e, &f) {
				strictErrs = append(strictErrs, fmt.Errorf(`unknown field "metadata.%s"`, f.FieldPath()))
			}
		}
	} else if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &m); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil {
		return nil, err
	}
	u.Object["metadata"] = content
	return strictErrs, nil
}

// isObjectMeta reports whether decoded metadata certainly has the form of an encoded ObjectMeta. Most metadata has, and
// the check takes a twentieth of the time of the conversion.
func isObjectMeta(metadata any) bool {
	m, ok := metadata.(map[string]any)
	if !ok {
		return false
	}
	for key, value := range m {
		switch key {
		case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion":
			ok = isText(value)
		case "generation":
			n, isInt := value.(int64)
			ok = isInt && n != 0
		case "deletionGracePeriodSeconds":
			_, ok = value.(int64)
		case "creationTimestamp", "deletionTimestamp":
			ok = isTime(value)
		case "labels", "annotations":
			texts, isMap := value.(map[string]any)
			ok = isMap && len(texts) > 0
			for _, text := range texts {
				_, isString := text.(string)
				ok = ok && isString
			}
		case "finalizers":
			ok = isList(value, func(item any) bool {
				_, isString := item.(string)
				return isString
			})
		case "ownerReferences":
			ok = isList(value, isOwnerReference)
		case "managedFields":
			ok = isList(value, isManagedFields)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

func isText(value any) bool {
	text, _ := value.(string)
	return text != ""
}

func isTime(value any) bool {
	text, _ := value.(string)
	t, err := time.Parse(time.RFC3339, text)
	return err == nil && !t.IsZero() && t.UTC().Format(time.RFC3339) == text
}

// isList reports whether value is a list of at least one item, all of which have a form.
func isList(value any, form func(item any) bool) bool {
	items, _ := value.([]any)
	return len(items) > 0 && !slices.ContainsFunc(items, func(item any) bool { return !form(item) })
}

func isOwnerReference(item any) bool {
	ref, _ := item.(map[string]any)
	for key, value := range ref {
		ok := false
		switch key {
		case "apiVersion", "kind", "name", "uid":
			_, ok = value.(string)
		case "controller", "blockOwnerDeletion":
			_, ok = value.(bool)
		}
		if !ok {
			return false
		}
	}
	for _, key := range []string{"apiVersion", "kind", "name", "uid"} { // are encoded even if they are empty
		if _, exists := ref[key]; !exists {
			return false
		}
	}
	return true
}

func isManagedFields(item any) bool {
	entry, ok := item.(map[string]any)
	for key, value := range entry {
		switch key {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			ok = isText(value)
		case "time":
			ok = isTime(value)
		case "fieldsV1":
			ok = isFieldSet(value)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return ok
}

// isFieldSet reports whether value is a tree of objects, as sets of fields are.
func isFieldSet(value any) bool {
	fields, ok := value.(map[string]any)
	for _, field := range fields {
		ok = ok && isFieldSet(field)
	}
	return ok
}

// prepareContent applies the rules for status and generation to an object; old is nil for a new object. statusOnly is
// true for an update of the status subresource. The rules of the kind have not run yet.
func (k *Kind) prepareContent(obj, old Object, statusOnly bool) error {
	if !k.custom() {
		return k.prepareTyped(obj, old, statusOnly)
	}
	u := obj.(*unstructured.Unstructured)
	if old == nil {
		if k.Status {
			delete(u.Object, "status")
		}
		u.SetGeneration(1)
		return nil
	}
	before := old.(*unstructured.Unstructured)
	if statusOnly {
		status, exists := u.Object["status"]
		managed, isManaged, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
		*u = *before.DeepCopy()
		if unstructured.RemoveNestedField(u.Object, "metadata", "managedFields"); isManaged {
			u.Object["metadata"].(map[string]any)["managedFields"] = managed
		}
		if delete(u.Object, "status"); exists {
			u.Object["status"] = status
		}
		return nil
	}
	if k.Status {
		if status, exists := before.Object["status"]; exists {
			u.Object["status"] = runtime.DeepCopyJSONValue(status)
		} else {
			delete(u.Object, "status")
		}
	}
	if !equality.Semantic.DeepEqual(withoutMetadata(u.Object), withoutMetadata(before.Object)) {
		u.SetGeneration(before.GetGeneration() + 1)
	}
	return nil
}

func withoutMetadata(content map[string]any) map[string]any {
	rest := maps.Clone(content)
	delete(rest, "metadata")
	return rest
}

// prepareTyped is prepareContent for a Go type. It finds spec and status by their names in JSON.
func (k *Kind) prepareTyped(obj, old Object, statusOnly bool) error {
	if old == nil {
		if k.Status && !k.StatusOnCreate {
			clearField(obj, "Status")
		}
		if k.Generation {
			obj.SetGeneration(1)
		}
		return nil
	}
	if statusOnly {
		copyField(obj, old, "Spec")
		if k.Rules.StatusIgnoresMetadata {
			metav1.ResetObjectMetaForStatus(obj, old.DeepCopyObject().(Object))
		}
		return nil
	}
	if k.Status {
		copyField(obj, old, "Status")
	}
	if k.Generation && !sameContent(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

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

func customRules(gvk schema.GroupVersionKind) rules {
	return rules{
		validate: func(obj, old object) field.ErrorList {
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
				return validateMetadata(u, u.GetNamespace() != "", validation.NameIsDNSSubdomain)
			}
			return validateMetadataUpdate(u, old)
		},
		stored: func(obj object) bool {
			integers(obj.(*unstructured.Unstructured).Object)
			return false
		},
		warnings: func(obj, old object) []string {
			var before []string
			if old != nil {
				before = old.GetFinalizers()
			}
			return finalizerWarnings(obj.GetFinalizers(), before)
		},
	}
}

// integers replaces the floating-point numbers in value that a reader of their JSON decodes as integers. Applied
// configurations have them: all numbers of YAML are decoded as floating-point numbers.
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
	standard := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}
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
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s to avoid accidental conflicts with other finalizer writers", name, what))
	}
	return warnings
}

// coerceMetadata gives the metadata of a custom resource the form of ObjectMeta: unknown fields are removed, and reported
// as strict errors. Error: a field with the wrong type.
func coerceMetadata(u *unstructured.Unstructured, strict bool) (strictErrs []error, err error) {
	metadata, exists := u.Object["metadata"]
	if !exists {
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

// prepareContent applies the rules for status and generation to an object; old is nil for a new object. statusOnly is true
// for an update of the status subresource. The rules of the kind have not run yet.
func (k *Kind) prepareContent(obj, old object, statusOnly bool) error {
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
func (k *Kind) prepareTyped(obj, old object, statusOnly bool) error {
	if !k.Generation && !statusOnly {
		return nil
	}
	if old == nil {
		if k.Status {
			clearField(obj, "Status")
		}
		obj.SetGeneration(1)
		return nil
	}
	if statusOnly {
		copyField(obj, old, "Spec")
		return nil
	}
	if k.Status {
		copyField(obj, old, "Status")
	}
	if !sameContent(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

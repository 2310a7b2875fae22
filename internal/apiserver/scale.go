package apiserver

import (
	"fmt"
	"math"
	"net/http"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Scale contains the paths of the fields that are the subresource scale, such as .spec.replicas.
type Scale struct {
	Replicas, StatusReplicas string
	// Selector is a text in a custom resource ("": no selector), and a label selector in a built-in kind.
	Selector string
}

const scaleSubresource = "scale"

// noReplicas stands for a custom resource without the field of the replicas.
const noReplicas = math.MinInt32

// newScaleKind returns the kind of the subresource.
func newScaleKind() *Kind {
	return Builtin[autoscalingv1.Scale](autoscalingv1.SchemeGroupVersion.WithKind("Scale"), scaleSubresource,
		autoscalingv1.AddToScheme)
}

// scaled reports whether the request is for the subresource scale.
func (r *request) scaled() bool { return r.subresource == scaleSubresource }

// ofBody returns a request whose kind is the one of the request's body: r itself, or for the subresource scale, a
// request with the kind Scale.
func (r *request) ofBody() *request {
	if !r.scaled() {
		return r
	}
	scale := *r
	scale.kind = r.serving.scale
	return &scale
}

// changeBody makes change change the part of current (nil: there is no object) that the request's body represents, and
// returns the changed object.
func (r *request) changeBody(current Object, change func(current Object) (Object, error)) (Object, error) {
	if !r.scaled() {
		return change(current)
	}
	content, err := contentOf(current)
	if err != nil {
		return nil, err
	}
	before, found, err := r.kind.Scale.of(current, content)
	if err != nil {
		return nil, err
	}
	if !found && r.kind.custom() {
		before.Spec.Replicas = noReplicas
	}
	version := r.kind.GroupVersion()
	handler := managedfields.NewScaleHandler(current.GetManagedFields(), version, r.serving.replicasPaths(r.kind))
	if before.ManagedFields, err = handler.ToSubresource(); err != nil {
		return nil, fmt.Errorf("managed fields of a scale: %w", err)
	}
	changed, err := change(before)
	if err != nil {
		return nil, err
	}
	after := changed.(*autoscalingv1.Scale)
	if err := r.checkScale(after, current); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(content, int64(after.Spec.Replicas),
		pathOf(r.kind.Scale.Replicas)...); err != nil {
		return nil, err
	}
	obj := Object(&unstructured.Unstructured{Object: content})
	if !r.kind.custom() {
		obj = r.kind.blank()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
			return nil, fmt.Errorf("scale a %s: %w", r.kind.Kind, err)
		}
	}
	if after.ResourceVersion != "" || !r.kind.custom() {
		obj.SetResourceVersion(after.ResourceVersion)
	}
	entries, err := handler.ToParent(after.ManagedFields)
	if err != nil {
		return nil, fmt.Errorf("managed fields of a scale: %w", err)
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

// replicasPaths returns the paths of the replicas in all versions of a resource; nil for versions without a scale.
func (s *serving) replicasPaths(kind *Kind) managedfields.ResourcePathMappings {
	paths := managedfields.ResourcePathMappings{}
	for _, version := range s.kinds {
		if version.storage() != kind.storage() {
			continue
		}
		var path fieldpath.Path
		if version.Scale != nil {
			for _, name := range pathOf(version.Scale.Replicas) {
				path = append(path, fieldpath.PathElement{FieldName: &name})
			}
		}
		paths[version.GroupVersion().String()] = path
	}
	return paths
}

// scaleError returns the error of an apply to the scale of a custom resource, whose result without this error is merged
// or err. The real server fails to convert the scale to the custom resource, unless nothing changes.
func (r *request) scaleError(current Object, patch *unstructured.Unstructured, merged runtime.Object, err error) error {
	version := r.kind.GroupVersion()
	const problem = "to proper version: request to convert CR to an invalid group/version"
	if len(current.GetManagedFields()) == 0 && !apierrors.IsBadRequest(err) {
		return fmt.Errorf("failed to create manager for existing fields: failed to convert live object (/; %s, "+
			"Kind=Scale) %s: %s", version, problem, version)
	}
	if err != nil {
		return err
	}
	before, after := current.DeepCopyObject().(Object), merged.DeepCopyObject().(Object)
	before.SetManagedFields(nil)
	after.SetManagedFields(nil)
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return fmt.Errorf("failed to convert new object (%s/%s; %s, Kind=Scale) %s: %s", patch.GetNamespace(),
		patch.GetName(), version, problem, version)
}

// checkScale returns an error if the scale of an object is invalid.
func (r *request) checkScale(scale *autoscalingv1.Scale, current Object) error {
	if r.kind.custom() {
		if scale.Spec.Replicas == noReplicas {
			return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty",
				r.kind.Scale.Replicas))
		}
		return nil
	}
	errs := ValidateCoreMetadata(scale, true, validation.NameIsDNSSubdomain)
	if scale.Spec.Replicas < 0 {
		errs = append(errs, validation.ValidateNonnegativeField(int64(scale.Spec.Replicas),
			field.NewPath("spec", "replicas"))...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.serving.scale.GroupKind(), current.GetName(), errs)
	}
	if uid := scale.UID; uid != "" && uid != current.GetUID() {
		resource := schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Resource + "/" + scaleSubresource}
		//nolint:staticcheck // the real server's text
		return apierrors.NewConflict(resource, current.GetName(), fmt.Errorf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, current.GetUID()))
	}
	return nil
}

// of returns the scale of an object with content. found is false if the object does not have the field of the replicas.
func (s *Scale) of(obj Object, content map[string]any) (scale *autoscalingv1.Scale, found bool, err error) {
	replicas, found, err := unstructured.NestedInt64(content, pathOf(s.Replicas)...)
	if err != nil {
		return nil, false, err
	}
	status, _, err := unstructured.NestedInt64(content, pathOf(s.StatusReplicas)...)
	if err != nil {
		return nil, false, err
	}
	selector := ""
	if s.Selector != "" {
		value, _, _ := unstructured.NestedFieldNoCopy(content, pathOf(s.Selector)...)
		if selector, err = selectorText(value); err != nil {
			return nil, false, err
		}
	}
	scale = &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(replicas)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(status), Selector: selector},
	}
	return scale, found, nil
}

// selectorText returns a selector in the form of a query parameter. value is a text, a label selector, or nil.
func selectorText(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case map[string]any:
		var selector metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(value, &selector); err != nil {
			return "", fmt.Errorf("read a label selector: %w", err)
		}
		parsed, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			return "", err
		}
		return parsed.String(), nil
	}
	return "", nil
}

// scaleRecord returns the scale of a stored object, as a record of the kind Scale.
func (r *request) scaleRecord(rec *record) (*record, error) {
	content, err := contentOf(rec.obj)
	if err != nil {
		return nil, err
	}
	scale, found, err := r.kind.Scale.of(rec.obj, content)
	if err == nil && !found && r.kind.custom() && r.Method == http.MethodGet {
		err = apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", r.kind.Scale.Replicas))
	}
	if err != nil {
		if r.Method != http.MethodGet {
			err = apierrors.NewBadRequest(err.Error())
		}
		return nil, err
	}
	return &record{kind: r.serving.scale, key: rec.key, version: rec.version, obj: scale}, nil
}

// contentOf returns a copy of an object as a map.
func contentOf(obj Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert a %T: %w", obj, err)
	}
	return content, nil
}

// pathOf returns the names of fields in a path such as .spec.replicas.
func pathOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

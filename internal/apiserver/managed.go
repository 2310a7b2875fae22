package apiserver

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// scope is a kind, or one of its subresources.
type scope struct {
	kind        *Kind
	subresource string
}

// newFieldManagers returns the field managers of all kinds and their subresources. They keep no state about objects.
func newFieldManagers(kinds []*Kind) (map[scope]*managedfields.FieldManager, error) {
	parser := newSchema()
	managers := map[scope]*managedfields.FieldManager{}
	for _, kind := range kinds {
		subresources := []string{""}
		if kind.Status {
			subresources = append(subresources, "status")
		}
		if kind.namespace() {
			subresources = append(subresources, "finalize")
		}
		name := typeOther
		if kind.schema != "" {
			name = kind.schema
		}
		types := fieldTypes{kind, parser.Type(name)}
		create := managedfields.NewDefaultFieldManager
		if kind.custom() {
			create = managedfields.NewDefaultCRDFieldManager
		}
		for _, subresource := range subresources {
			manager, err := create(types, types, types, types, kind.GroupVersionKind, kind.GroupVersion(), subresource, kind.resetFields(subresource))
			if err != nil {
				return nil, fmt.Errorf("field manager of %s: %w", kind.Kind, err)
			}
			managers[scope{kind, subresource}] = manager
		}
	}
	return managers, nil
}

// resetFields returns the fields that a write to the subresource ("": the object) ignores: nobody becomes their manager.
func (k *Kind) resetFields(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	if !k.Status {
		return nil
	}
	ignored := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if subresource == "status" {
		ignored = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
		if k.custom() {
			ignored.Insert(fieldpath.MakePathOrDie("metadata"))
		}
	}
	version := fieldpath.APIVersion(k.GroupVersion().String())
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{version: ignored})
}

// fieldTypes converts objects of a kind for its field manager. The kind has one version, so there is nothing to convert
// between versions.
type fieldTypes struct {
	kind   *Kind
	schema typed.ParseableType
}

func (t fieldTypes) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return t.schema.FromUnstructured(u.Object, options...)
	}
	return t.schema.FromStructured(obj, options...)
}

// TypedToObject returns a copy: the value shares maps with the stored object.
func (t fieldTypes) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	content, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("merge a %s: the result is not an object", t.kind.Kind)
	}
	if t.kind.custom() {
		content = runtime.DeepCopyJSON(content)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// ConvertToVersion gives a merged object the Go type of its kind.
func (t fieldTypes) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if version, ok := target.(schema.GroupVersion); ok && version != t.kind.GroupVersion() {
		return nil, runtime.NewNotRegisteredErrForKind(t.kind.Kind, version.WithKind(t.kind.Kind))
	}
	u, ok := in.(*unstructured.Unstructured)
	if !ok || t.kind.custom() {
		return in, nil
	}
	out := t.kind.newObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %s: %w", t.kind.GroupVersionKind, err)
	}
	out.GetObjectKind().SetGroupVersionKind(t.kind.GroupVersionKind)
	return out, nil
}

func (fieldTypes) Convert(_, _, _ any) error { return errors.New("not supported") }

func (fieldTypes) ConvertFieldLabel(schema.GroupVersionKind, string, string) (name, value string, err error) {
	return "", "", errors.New("not supported")
}

func (t fieldTypes) Default(in runtime.Object) {
	if obj, ok := in.(object); ok && t.kind.rules.defaults != nil {
		t.kind.rules.defaults(obj)
	}
}

func (t fieldTypes) New(schema.GroupVersionKind) (runtime.Object, error) { return t.kind.blank(), nil }

// manage sets the managed fields of an object that a create, an update or a patch writes; live is nil for a new object.
func (r *request) manage(live, obj object, options writeOptions) object {
	if live == nil {
		live = r.kind.blank()
	}
	managed := r.server.managers[scope{r.kind, r.subresource}].UpdateNoErrors(live, obj, managerName(options.manager, r.UserAgent())).(object)
	truncateTimes(managed)
	return managed
}

// truncateTimes gives the times of managed fields the precision of JSON.
func truncateTimes(obj object) {
	if _, ok := obj.(*unstructured.Unstructured); ok {
		return // whose times are texts
	}
	entries := obj.GetManagedFields()
	for i := range entries {
		if t := entries[i].Time; t != nil {
			entries[i].Time = &metav1.Time{Time: t.Truncate(time.Second)}
		}
	}
}

// managerName returns the parameter fieldManager, or without it the first part of the user agent.
func managerName(parameter, userAgent string) string {
	if parameter != "" {
		return parameter
	}
	product, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, c := range product {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > metavalidation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}

// keepTimes undoes a write of managed fields that changes nothing but times, so that the write is not a change.
func keepTimes(obj, old object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		entries, before := obj.GetManagedFields(), old.GetManagedFields()
		if !onlyTimesDiffer(entries, before) {
			return
		}
		obj.SetManagedFields(before)
		if !equality.Semantic.DeepEqual(obj, old) {
			obj.SetManagedFields(entries)
		}
		return
	}
	metadata, _ := u.Object["metadata"].(map[string]any)
	oldMetadata, _ := old.(*unstructured.Unstructured).Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	before, _ := oldMetadata["managedFields"].([]any)
	if !onlyRawTimesDiffer(entries, before) {
		return
	}
	metadata["managedFields"] = before
	if !reflect.DeepEqual(u.Object, old.(*unstructured.Unstructured).Object) {
		metadata["managedFields"] = entries
	}
}

// onlyTimesDiffer reports whether two lists of managed fields have different times and are equal otherwise.
func onlyTimesDiffer(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	differ := false
	for i := range a {
		x, y := a[i], b[i]
		differ = differ || !x.Time.Equal(y.Time)
		x.Time, y.Time = nil, nil
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return differ
}

// onlyRawTimesDiffer is onlyTimesDiffer for the managed fields of a custom resource.
func onlyRawTimesDiffer(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	differ := false
	for i := range a {
		x, _ := a[i].(map[string]any)
		y, _ := b[i].(map[string]any)
		if len(x) != len(y) {
			return false
		}
		differ = differ || x["time"] != y["time"]
	}
	for i := 0; differ && i < len(a); i++ { // the expensive part, only if it can be true
		x, _ := a[i].(map[string]any)
		y, _ := b[i].(map[string]any)
		for key, value := range x {
			differ = differ && (key == "time" || reflect.DeepEqual(value, y[key]))
		}
	}
	return differ
}

package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// scope is a kind, or one of its subresources.
type scope struct {
	kind        *Kind
	subresource string
}

// addFieldManagers adds the field managers of a kind and its subresources. They keep no state about objects. versions
// are the kinds of the same resource.
func addFieldManagers(
	managers map[scope]*managedfields.FieldManager, kind *Kind, versions []*Kind,
	typeOf func(*Kind) typed.ParseableType,
) error {
	types := fieldTypes{kind, versions, typeOf}
	create := managedfields.NewDefaultFieldManager
	if kind.custom() {
		create = managedfields.NewDefaultCRDFieldManager
	}
	for _, subresource := range kind.subresources() {
		manager, err := create(types, types, types, types, kind.GroupVersionKind, kind.GroupVersion(), subresource,
			kind.resetFields(subresource, versions))
		if err != nil {
			return fmt.Errorf("field manager of %s: %w", kind.Kind, err)
		}
		managers[scope{kind, subresource}] = manager
	}
	return nil
}

// resetFields returns the fields that a write to the subresource ("": the object) ignores: nobody becomes their
// manager. For the status of custom resources, they are ignored in all versions.
func (k *Kind) resetFields(subresource string, versions []*Kind) map[fieldpath.APIVersion]fieldpath.Filter {
	if filter := k.Managed[subresource]; filter != nil {
		return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(k.GroupVersion().String()): filter}
	}
	if !k.Status || slices.Contains(k.Subresources, subresource) {
		return nil
	}
	ignored := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if subresource == "status" {
		ignored = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
		if k.custom() || k.Rules.StatusIgnoresMetadata {
			ignored.Insert(fieldpath.MakePathOrDie("metadata"))
		}
		for _, name := range k.Rules.StatusIgnores {
			ignored.Insert(fieldpath.MakePathOrDie("metadata", name))
		}
	}
	sets := map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(k.GroupVersion().String()): ignored}
	for _, other := range versions {
		if k.custom() && other.Status && subresource == "status" {
			sets[fieldpath.APIVersion(other.GroupVersion().String())] = ignored
		}
	}
	return fieldpath.NewExcludeFilterSetMap(sets)
}

// fieldTypes converts objects of a kind for its field manager.
type fieldTypes struct {
	kind     *Kind
	versions []*Kind // of the resource, kind included
	typeOf   func(*Kind) typed.ParseableType
}

// version returns the kind in a version of its group, or nil. The field manager of the real server has the types of one
// group: a write removes the managers that wrote in another one.
func (t fieldTypes) version(gv schema.GroupVersion) *Kind {
	if i := slices.IndexFunc(t.versions, func(k *Kind) bool {
		return k.GroupVersion() == gv && gv.Group == t.kind.Group
	}); i >= 0 {
		return t.versions[i]
	}
	return nil
}

func (t fieldTypes) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	kind := t.kind
	if gv := obj.GetObjectKind().GroupVersionKind().GroupVersion(); gv != kind.GroupVersion() {
		kind = cmp.Or(t.version(gv), kind)
	}
	schema := t.typeOf(kind)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		// Not an applied configuration: only metadata has a schema, which it fits. A validation takes a tenth of the
		// write.
		if kind.Types == nil && len(options) > 0 {
			//nolint:staticcheck // deprecated, because validation is cheaper than it was
			return typed.AsTypedUnvalidated(value.NewValueInterface(u.Object), schema.Schema, schema.TypeRef), nil
		}
		return schema.FromUnstructured(u.Object, options...)
	}
	// the field manager walks maps faster than structs
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	if len(options) > 0 { // not an applied configuration: a Go type fits its schema
		//nolint:staticcheck // as above
		return typed.AsTypedUnvalidated(value.NewValueInterface(content), schema.Schema, schema.TypeRef), nil
	}
	return schema.FromUnstructured(content, options...)
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

// ConvertToVersion gives a merged object the Go type of its kind, and converts between the versions of a resource.
func (t fieldTypes) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from, to := t.kind, t.kind
	if version, ok := target.(schema.GroupVersion); ok {
		if to = t.version(version); to == nil {
			return nil, runtime.NewNotRegisteredErrForKind(t.kind.Kind, version.WithKind(t.kind.Kind))
		}
	}
	if gv := in.GetObjectKind().GroupVersionKind().GroupVersion(); gv != from.GroupVersion() {
		from = cmp.Or(t.version(gv), from)
	}
	obj := in.(Object)
	if u, ok := in.(*unstructured.Unstructured); ok && !from.custom() {
		obj = from.NewObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return nil, fmt.Errorf("unable to convert unstructured object to %s: %w", from.GroupVersionKind, err)
		}
		obj.GetObjectKind().SetGroupVersionKind(from.GroupVersionKind)
	}
	if from == to {
		return obj, nil
	}
	if to.Convert != nil {
		return to.Convert(obj)
	}
	return to.From(obj)
}

func (fieldTypes) Convert(_, _, _ any) error { return errors.New("not supported") }

func (fieldTypes) ConvertFieldLabel(schema.GroupVersionKind, string, string) (name, value string, err error) {
	return "", "", errors.New("not supported")
}

func (t fieldTypes) Default(in runtime.Object) {
	if obj, ok := in.(Object); ok && t.kind.Rules.Default != nil {
		t.kind.Rules.Default(obj)
	}
}

func (t fieldTypes) New(schema.GroupVersionKind) (runtime.Object, error) { return t.kind.blank(), nil }

// manage sets the managed fields of an object that a create, an update or a patch writes; live is nil for a new object.
func (r *request) manage(live, obj Object, options writeOptions) Object {
	if live == nil {
		live = r.kind.blank()
	}
	managed, err := r.serving.managers[scope{r.kind, r.subresource}].Update(live, obj,
		fieldManager(options.manager, r.UserAgent()))
	// an object that does not fit the schema: Kubernetes 1.36 removes its managed fields, 1.37 keeps those of live
	if err != nil {
		obj.SetManagedFields(nil)
		return obj
	}
	truncateTimes(managed.(Object))
	return managed.(Object)
}

// truncateTimes gives the times of managed fields the precision of JSON.
func truncateTimes(obj Object) {
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

// keepTimes undoes a write of managed fields that changes nothing but times, so that the write is not a change.
func keepTimes(obj, old Object) {
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

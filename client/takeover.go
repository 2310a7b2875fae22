package client

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TakeOver makes the field owner the applier of all fields that managers have written to obj by Update (or
// Create, or a patch other than an apply). So the next Apply removes those of them that its configuration does
// not contain. Without TakeOver they are never removed, because an apply removes only applied fields. It is for
// objects that an earlier version of a program, or another tool, has written.
//
// The values of the fields do not change. TakeOver does nothing if the managers have written nothing to obj,
// and ignores subresources. It only takes over fields that managers have written in one version of the kind:
// the version of the field owner's own applies, if any; otherwise the version of obj, or the latest version
// that they have written. The other fields get no manager, as with kubectl apply --server-side.
//
// Flow: obj is read from the API server; then one JSON patch, unless nothing must be taken over. It requires the
// resourceVersion that was read.
//
// Options: DryRun, FieldOwner, IfUnchanged.
//
// Errors: those of GetLive; ErrChanged if another client has written the object since it was read: call TakeOver
// again.
func TakeOver[T kube.Object](
	ctx context.Context, c *Client, obj T, managers []string, options ...WriteOption,
) (changed bool, err error) {
	t, err := begin(ctx, c, "take over", obj, options, "DryRun, FieldOwner, IfUnchanged")
	if err != nil {
		return false, err
	}
	defer func() { err = t.failed(err) }()
	owner := t.request(VerbPatch).FieldOwner
	seen := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}}
	seen.SetGroupVersionKind(t.kind)
	t.model = seen
	live, err := readLive(ctx, t, seen)
	if err != nil {
		return false, err
	}
	after := live.DeepCopy()
	makeApplier(after.ManagedFields, managers, owner, t.kind.GroupVersion().String())
	err = csaupgrade.UpgradeManagedFields(after, sets.New(managers...), owner)
	if err != nil || reflect.DeepEqual(after.ManagedFields, live.ManagedFields) {
		return false, err
	}
	patch := JSONPatch(Operation{Op: "replace", Path: "/metadata/managedFields", Value: after.ManagedFields}).
		Locked(live)
	if _, err := sendPatch(ctx, t, patch, seen); err != nil {
		return false, asChanged(err)
	}
	return true, nil
}

// makeApplier turns one entry of managers into that of the field owner, if the field owner has none. csaupgrade
// adds the entries of managers in the same version to it, and drops the others. Without makeApplier, csaupgrade
// would use the oldest entry.
func makeApplier(entries []metav1.ManagedFieldsEntry, managers []string, fieldOwner, version string) {
	best := -1
	for i, entry := range entries { // the API server sorts them by time
		switch {
		case entry.Manager == fieldOwner && entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == "":
			return
		case !isUpdateBy(entry, managers):
		case best < 0 || entry.APIVersion == version || entries[best].APIVersion != version:
			best = i
		}
	}
	if best >= 0 {
		entries[best].Manager, entries[best].Operation = fieldOwner, metav1.ManagedFieldsOperationApply
	}
}

// LeftFields returns the fields that Apply keeps because managers have written them by Update, and that no
// other manager owns: the fields that the next Apply removes after TakeOver. after is the object that Apply
// returned, with its managedFields; before is the object in the cluster: the same object, unless the apply was
// a dry run. In the result, Before is the value of each field.
//
// managedFields also list the managers as owners of defaults. So LeftFields gets the object without the fields from the
// API server, by the dry run of a patch. If that is rejected, the result includes defaults.
func LeftFields(ctx context.Context, c *Client, before, after kube.Object, managers []string) ([]FieldChange, error) {
	t, err := begin(ctx, c, "look for left fields in", after, []WriteOption{DryRun()}, optionsOfUpdate)
	if err != nil {
		return nil, err
	}
	changes, err := leftFields(ctx, t, before, after, managers)
	return changes, t.failed(err)
}

// leftFields is LeftFields for a target with the option DryRun.
func leftFields(ctx context.Context, t target, before, after kube.Object, managers []string) ([]FieldChange, error) {
	current, err := contentOf(before)
	if err != nil {
		return nil, err
	}
	content, err := contentOf(after)
	if err != nil {
		return nil, err
	}
	former, otherFields, err := writtenFields(after, managers)
	if err != nil {
		return nil, err
	}
	whole, err := contentOf(after)
	if err != nil {
		return nil, err
	}
	d := stripper{differ{hides: hides(t.client.Cluster(), after)}, whole}
	stripped := any(content)
	for _, fields := range former {
		stripped = d.strip(nil, fields, otherFields, stripped)
	}
	if len(d.changes) == 0 {
		return nil, nil
	}
	fields := []string{"apiVersion", "kind", "status"}
	current = difference.Without(current, fields, difference.ServerMetadata()...)
	rest := difference.Without(stripped.(map[string]any), fields, difference.ServerMetadata()...)
	response, err := sendPatch(ctx, t, mergeBody(difference.MergePatch(current, rest)), after)
	switch retry.Classify(err) {
	case retry.Invalid, retry.Forbidden, retry.NamespaceTerminating: // policies and webhooks use all of them
		return d.sorted(), nil
	}
	if err != nil {
		return nil, err
	}
	return Diff(t.client, after, response), nil
}

// writtenFields returns the fields that managers have written by Update to the object, and those of all other
// managers.
func writtenFields(obj metav1.Object, managers []string) (former, otherFields []map[string]any, err error) {
	for _, entry := range obj.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		fields := map[string]any{}
		if err := utiljson.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil, nil, fmt.Errorf("read the fields of %s: %w", entry.Manager, err)
		}
		if isUpdateBy(entry, managers) {
			former = append(former, fields)
		} else {
			otherFields = append(otherFields, fields)
		}
	}
	return former, otherFields, nil
}

func isUpdateBy(entry metav1.ManagedFieldsEntry, managers []string) bool {
	return entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" &&
		slices.Contains(managers, entry.Manager)
}

// formerManagersOf returns the managers of this program that have written obj by Update: the field owner, and
// the default name of client-go for the program.
func formerManagersOf(obj metav1.Object, fieldOwner string) []string {
	program, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	var former []string
	for _, entry := range obj.GetManagedFields() {
		if isUpdateBy(entry, []string{fieldOwner, program}) && !slices.Contains(former, entry.Manager) {
			former = append(former, entry.Manager)
		}
	}
	return former
}

// stripper collects the fields that are removed from an object.
type stripper struct {
	differ
	whole any // the object with all its fields
}

// strip returns content without the fields that no other manager owns, and adds them to d. path has the names of fields
// and elements in managedFields.
func (d *stripper) strip(path []string, fields map[string]any, otherFields []map[string]any, content any) any {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, index, found := step(name, content)
		if !found {
			continue
		}
		var shared []map[string]any
		for _, other := range otherFields {
			if below, isMap := other[name].(map[string]any); isMap {
				shared = append(shared, below)
			}
		}
		at := append(slices.Clip(path), name)
		below, _ := fields[name].(map[string]any)
		_, itself := below["."]
		switch {
		case len(shared) == 0 && (itself || elements(below) == 0): // otherwise the map itself has no owner
			d.add(d.pathOf(at), value, nil)
			content = replaced(name, index, content, nil)
		case elements(below) > 0:
			content = replaced(name, index, content, d.strip(at, withoutKeys(name, below), shared, value))
		}
	}
	return content
}

// pathOf returns the path of names in managedFields.
func (d *stripper) pathOf(names []string) (path difference.Path) {
	content := d.whole
	for _, name := range names {
		value, index, _ := step(name, content)
		if list, isList := content.([]any); isList {
			path = path.Element(list, index)
		} else {
			path = path.Field(strings.TrimPrefix(name, "f:"))
		}
		content = value
	}
	return path
}

// withoutKeys returns the fields of a list element without its keys, which stay as long as the element stays.
func withoutKeys(name string, fields map[string]any) map[string]any {
	key, keyed, _ := elementKey(name)
	keys, _ := key.(map[string]any)
	if !keyed || len(keys) == 0 {
		return fields
	}
	fields = maps.Clone(fields)
	for name := range keys {
		delete(fields, "f:"+name)
	}
	return fields
}

// replaced returns content with another value in a field, or in the list element at index; nil removes it.
func replaced(name string, index int, content, value any) any {
	if field, isField := strings.CutPrefix(name, "f:"); isField {
		fields := content.(map[string]any)
		if fields[field] = value; value == nil {
			delete(fields, field)
		}
		return fields
	}
	list := content.([]any)
	if value == nil {
		return slices.Delete(list, index, index+1)
	}
	list[index] = value
	return list
}

// step returns the field, or the list element at index, that has this name in managedFields.
func step(name string, content any) (value any, index int, found bool) {
	if field, isField := strings.CutPrefix(name, "f:"); isField {
		fields, _ := content.(map[string]any)
		value, found = fields[field]
		return value, -1, found
	}
	key, _, known := elementKey(name)
	list, _ := content.([]any)
	if index = elementAt(list, key, 0); !known || index < 0 {
		return nil, -1, false
	}
	return list[index], index, true
}

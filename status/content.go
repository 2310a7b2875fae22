package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Edit changes the conditions of an unstructured object, in status.conditions, in memory. Conditions that edit does
// not change stay as they are, including fields that metav1.Condition does not have.
//
//	err := status.Edit(shop, func(conditions *[]metav1.Condition) {
//		status.SetReady(conditions, shop.GetGeneration(), "Deployed", "3 replicas are up")
//	})
//
// Errors: a status or conditions of another format. The object is not changed then.
func Edit(obj *unstructured.Unstructured, edit func(conditions *[]metav1.Condition)) error {
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", conditionsField)
	if err != nil {
		return fmt.Errorf("edit the conditions of %s %s: %w", obj.GetKind(), kube.KeyOf(obj), err)
	}
	var entries []condition
	var before []metav1.Condition
	encoded, err := json.Marshal(list)
	if err == nil {
		err = errors.Join(utiljson.Unmarshal(encoded, &entries), json.Unmarshal(encoded, &before))
	}
	if err != nil {
		return fmt.Errorf("edit the conditions of %s %s: status.conditions is not a list of conditions: %w",
			obj.GetKind(), kube.KeyOf(obj), err)
	}
	after := slices.Clone(before)
	edit(&after)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	edited := make([]any, len(after))
	for i := range after {
		if at := slices.Index(before, after[i]); at >= 0 {
			edited[i] = entries[at] // keeps its encoding, which may differ from that of Go
			continue
		}
		if edited[i], err = editedEntry(&after[i], before, entries); err != nil {
			return fmt.Errorf("edit the conditions of %s %s: encode them: %w", obj.GetKind(), kube.KeyOf(obj), err)
		}
	}
	if obj.Object == nil {
		obj.Object = map[string]any{}
	}
	if obj.Object["status"] == nil {
		delete(obj.Object, "status") // SetNestedSlice rejects null
	}
	return unstructured.SetNestedSlice(obj.Object, edited, "status", conditionsField)
}

// editedEntry returns the list entry for a condition. entries are those of the conditions in before.
func editedEntry(c *metav1.Condition, before []metav1.Condition, entries []condition) (any, error) {
	fields, err := difference.Content(c)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(before, func(old metav1.Condition) bool { return old.Type == c.Type })
	if i < 0 {
		return fields, nil
	}
	old, err := difference.Content(before[i])
	if err != nil {
		return nil, err
	}
	return conditionChange{c.Type, old, fields}.appliedTo(entries[i]), nil
}

// sameStatus reports whether two objects certainly have the same status, without encoding them: most runs change
// nothing.
func sameStatus(a, b kube.Object) bool {
	if a, ok := a.(runtime.Unstructured); ok {
		b, ok := b.(runtime.Unstructured)
		return ok && reflect.DeepEqual(a.UnstructuredContent()["status"], b.UnstructuredContent()["status"])
	}
	statusA, statusB := reflect.Indirect(reflect.ValueOf(a)), reflect.Indirect(reflect.ValueOf(b))
	if statusA.Type() != statusB.Type() || statusA.Kind() != reflect.Struct {
		return false
	}
	field, ok := statusA.Type().FieldByName("Status")
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return ok && name == "status" &&
		reflect.DeepEqual(statusA.FieldByIndex(field.Index).Interface(), statusB.FieldByIndex(field.Index).Interface())
}

// contentOf returns the status of an object in the form of decoded JSON: numbers are int64 or float64. It is nil if the
// object has no status. The caller must not change it.
func contentOf(obj kube.Object) (map[string]any, error) {
	var whole any = obj
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return nil, fmt.Errorf("a %T contains only metadata: read the whole object", obj)
	case runtime.Unstructured:
		// A handler may have set an int or a slice of maps. The rest of the object does not matter.
		whole = map[string]any{"status": obj.UnstructuredContent()["status"]}
	}
	content, err := difference.ContentExcept(whole, func(field, _ string) bool { return field != "status" })
	if err != nil {
		return nil, err
	}
	status, ok := content["status"].(map[string]any)
	if content["status"] != nil && !ok {
		return nil, fmt.Errorf("its status is a %T: it must be an object", content["status"])
	}
	return status, nil
}

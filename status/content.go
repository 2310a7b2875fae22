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

	"github.com/evenkeel-go/evenkeel/kube"
)

// Edit lets edit change the conditions of an unstructured object, under status.conditions, in
// memory. What edit does not change stays as it is, also what entries have beside the fields of a
// metav1.Condition.
//
//	err := status.Edit(shop, func(conditions *[]metav1.Condition) {
//		status.SetReady(conditions, shop.GetGeneration(), "Deployed", "3 replicas are up")
//	})
//
// Errors: a status or conditions of another form; the object is as it was then.
func Edit(obj *unstructured.Unstructured, edit func(conditions *[]metav1.Condition)) error {
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", conditionsField)
	if err != nil {
		return fmt.Errorf("edit the conditions of %s %s: %w", obj.GetKind(), kube.KeyOf(obj), err)
	}
	var entries []any
	var before []metav1.Condition
	encoded, err := json.Marshal(list)
	if err == nil {
		err = errors.Join(utiljson.Unmarshal(encoded, &entries), json.Unmarshal(encoded, &before))
	}
	if err != nil {
		return fmt.Errorf("edit the conditions of %s %s: status.conditions is no list of conditions: %w", obj.GetKind(), kube.KeyOf(obj), err)
	}
	after := slices.Clone(before)
	edit(&after)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	edited := make([]any, len(after))
	for i := range after {
		if edited[i], err = editedEntry(&after[i], before, entries); err != nil {
			return fmt.Errorf("edit the conditions of %s %s: encode them: %w", obj.GetKind(), kube.KeyOf(obj), err)
		}
	}
	if obj.Object == nil {
		obj.Object = map[string]any{}
	}
	if obj.Object["status"] == nil {
		delete(obj.Object, "status") // null is none
	}
	return unstructured.SetNestedSlice(obj.Object, edited, "status", conditionsField)
}

// editedEntry returns what stands in the list for a condition. entries are what stood there for
// before.
func editedEntry(c *metav1.Condition, before []metav1.Condition, entries []any) (any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(before, func(was metav1.Condition) bool { return reflect.DeepEqual(was, *c) }); i >= 0 {
		return entries[i], nil // also how it is written, which is not always how Go writes it
	}
	i := slices.IndexFunc(before, func(was metav1.Condition) bool { return was.Type == c.Type })
	if i < 0 {
		return fields, nil
	}
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&before[i])
	if err != nil {
		return nil, err
	}
	return conditionChange{c.Type, was, fields}.made(entries[i]), nil
}

// sameStatus reports whether two objects have the same status, where that can be told without
// encoding them: most runs change nothing.
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

// contentOf returns an object's status as JSON has it: numbers are int64 or float64. Do not change
// it. It is nil when there is none.
func contentOf(obj kube.Object) (map[string]any, error) {
	var content any
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return nil, fmt.Errorf("a %T has metadata only: read the whole object", obj)
	case runtime.Unstructured:
		// Made anew, because what a handler has put in may be an int, or a slice of maps.
		encoded, err := json.Marshal(obj.UnstructuredContent()["status"])
		if err != nil {
			return nil, fmt.Errorf("encode the status: %w", err)
		}
		if err := utiljson.Unmarshal(encoded, &content); err != nil {
			return nil, fmt.Errorf("decode the status: %w", err)
		}
	default:
		// Not by apimachinery's converter, which panics at some fields that are not exported.
		encoded, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode the object: %w", err)
		}
		var whole map[string]any
		if err := utiljson.Unmarshal(encoded, &whole); err != nil {
			return nil, fmt.Errorf("decode the object: %w", err)
		}
		content = whole["status"]
	}
	status, ok := content.(map[string]any)
	if content != nil && !ok {
		return nil, fmt.Errorf("its status is a %T: only one with fields can be committed", content)
	}
	return status, nil
}

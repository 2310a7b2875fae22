package status

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Edit lets edit change the conditions of an unstructured object, under status.conditions, in
// memory. What a list entry has beside the fields of a metav1.Condition is lost when edit changes
// anything.
//
//	err := status.Edit(shop, func(conditions *[]metav1.Condition) {
//		status.Ready(conditions, shop.GetGeneration(), "Deployed", "3 replicas are up")
//	})
//
// Errors: a status or conditions of another form; the object is as it was then.
func Edit(obj *unstructured.Unstructured, edit func(conditions *[]metav1.Condition)) error {
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("edit the conditions of %s %s: %w", obj.GetKind(), kube.KeyOf(obj), err)
	}
	var before, after []metav1.Condition
	encoded, err := json.Marshal(list)
	if err == nil {
		err = json.Unmarshal(encoded, &before)
	}
	if err != nil {
		return fmt.Errorf("edit the conditions of %s %s: status.conditions is no list of conditions: %w", obj.GetKind(), kube.KeyOf(obj), err)
	}
	after = append(after, before...)
	edit(&after)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	entries := make([]any, len(after))
	for i := range after {
		if entries[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&after[i]); err != nil {
			return fmt.Errorf("edit the conditions of %s %s: encode them: %w", obj.GetKind(), kube.KeyOf(obj), err)
		}
	}
	if obj.Object == nil {
		obj.Object = map[string]any{}
	}
	return unstructured.SetNestedSlice(obj.Object, entries, "status", "conditions")
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
	return ok && field.Tag.Get("json") != "" &&
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
		whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("encode the object: %w", err)
		}
		content = whole["status"]
	}
	status, ok := content.(map[string]any)
	if content != nil && !ok {
		return nil, fmt.Errorf("its status is a %T: only one with fields can be committed", content)
	}
	return status, nil
}

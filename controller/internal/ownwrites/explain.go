package ownwrites

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// explains reports whether a patch accounts for every difference between two states: each field that differs has the
// value in the request. A removed field is never explained, because the patch may have omitted it for any reason.
func explains(request map[string]any, call kube.Call, from, to map[string]any) bool {
	for name := range union(from, to) {
		e, requested := explanation{wholeLists: call.RequestType == string(types.MergePatchType)}, request[name]
		if call.Subresource != "" && name != call.Subresource {
			e, requested = explanation{}, nil // the patch cannot change this field, whatever the request contains
		}
		explained := e.value
		switch name {
		case "apiVersion", "kind":
			continue
		case "metadata":
			explained = e.metadata
		}
		if !explained(requested, from[name], to[name]) {
			return false
		}
	}
	return true
}

// explanation checks whether a request accounts for the differences between two states.
type explanation struct {
	wholeLists bool // the request contains whole lists; other patches may omit elements
}

// metadata is value for an object's metadata, and ignores the fields that every write changes.
func (e explanation) metadata(request, from, to any) bool {
	requested, _ := request.(map[string]any)
	before, _ := from.(map[string]any)
	after, _ := to.(map[string]any)
	for name := range union(before, after) {
		switch name {
		case "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink":
			continue
		}
		if !e.value(requested[name], before[name], after[name]) {
			return false
		}
	}
	return true
}

// value reports whether request accounts for the change of one field between two values. nil: the field is absent.
func (e explanation) value(request, from, to any) bool {
	switch {
	case same(from, to):
		return true
	case to == nil:
		return false
	case same(request, to) && e.replaces(from, to):
		return true
	}
	requested, before, after, ok := asFields(request, from, to)
	if !ok {
		return false
	}
	for name := range union(before, after) {
		if !e.value(requested[name], before[name], after[name]) {
			return false
		}
	}
	return true
}

// replaces reports whether a patch with the value to changes the value from into to. A patch keeps each field and
// element that it does not name: if one is gone, another client removed it.
func (e explanation) replaces(from, to any) bool {
	switch before := from.(type) {
	case map[string]any:
		_, isMap := to.(map[string]any)
		return !isMap
	case []any:
		after, isList := to.([]any)
		return e.wholeLists || isList && !slices.ContainsFunc(before, func(element any) bool {
			return !slices.ContainsFunc(after, func(other any) bool { return same(element, other) })
		})
	}
	return true
}

// asFields returns three values by the names of their parts. They are maps, or lists with elements that all have a
// name in the same field. Elements that are in both from and to must have the same order there.
func asFields(request, from, to any) (requested, before, after map[string]any, ok bool) {
	if after, ok = to.(map[string]any); ok {
		requested, ok = request.(map[string]any)
		before, _ = from.(map[string]any)
		return requested, before, after, ok && (from == nil || before != nil)
	}
	for _, field := range []string{"name", "type", "key"} {
		var order, orderBefore []string
		var okAsked, okBefore, okAfter bool
		requested, _, okAsked = byName(request, field)
		before, orderBefore, okBefore = byName(from, field)
		after, order, okAfter = byName(to, field)
		if request != nil && okAsked && okBefore && okAfter {
			notIn := func(elements map[string]any) func(string) bool {
				return func(name string) bool { return elements[name] == nil }
			}
			order, orderBefore = slices.DeleteFunc(order, notIn(before)), slices.DeleteFunc(orderBefore, notIn(after))
			return requested, before, after, slices.Equal(order, orderBefore)
		}
	}
	return nil, nil, nil, false
}

// byName returns the elements of a list by their names in field. ok is false if value is not a list, an element has
// no name, or two elements have the same name.
func byName(value any, field string) (elements map[string]any, order []string, ok bool) {
	list, ok := value.([]any)
	if !ok {
		return nil, nil, value == nil
	}
	elements = make(map[string]any, len(list))
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, ok := fields[field].(string)
		if _, twice := elements[name]; !ok || twice {
			return nil, nil, false
		}
		elements[name] = element
		order = append(order, name)
	}
	return elements, order, true
}

// union returns a map with the fields of a and b.
func union(a, b map[string]any) map[string]any {
	fields := make(map[string]any, len(a))
	maps.Copy(fields, a)
	maps.Copy(fields, b)
	return fields
}

// same reports whether two values have the same JSON.
func same(a, b any) bool {
	switch a := a.(type) {
	case string:
		other, ok := b.(string)
		return ok && a == other
	case map[string]any:
		if other, ok := b.(map[string]any); ok && a != nil && other != nil {
			return maps.EqualFunc(a, other, same)
		}
	case []any:
		if other, ok := b.([]any); ok && a != nil && other != nil {
			return slices.EqualFunc(a, other, same)
		}
	}
	// All other values are numbers, of several Go types, and values that are quick to encode.
	encodedA, errA := json.Marshal(a)
	encodedB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(encodedA, encodedB)
}

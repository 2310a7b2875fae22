package difference

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// The functions of this file are a model of JSONPatch: they work on decoded values, and return the result of the patch.

// decodeValue decodes JSON. Numbers keep their text, because neither int64 nor float64 can hold every number of a Go
// type.
func decodeValue(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// apply returns raw with the difference between before and after.
func apply(raw, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return raw
	}
	rawFields, isMap := raw.(map[string]any)
	beforeFields, wasMap := before.(map[string]any)
	afterFields, becomesMap := after.(map[string]any)
	if isMap && wasMap && becomesMap {
		return applyFields(rawFields, beforeFields, afterFields)
	}
	rawItems, isList := raw.([]any)
	beforeItems, wasList := before.([]any)
	afterItems, becomesList := after.([]any)
	if isList && wasList && becomesList && len(rawItems) == len(beforeItems) {
		return applyItems(rawItems, beforeItems, afterItems)
	}
	return after
}

func applyFields(raw, before, after map[string]any) map[string]any {
	result := maps.Clone(raw)
	for name := range before {
		if _, ok := after[name]; !ok {
			delete(result, name)
		}
	}
	for name, value := range after {
		old, ok := before[name]
		current, hasFields := raw[name].(map[string]any)
		switch {
		case ok && reflect.DeepEqual(old, value): // unchanged
		case ok && raw[name] != nil:
			result[name] = apply(raw[name], old, value)
		case !ok && hasFields: // the Go type leaves out an empty struct
			result[name] = apply(current, map[string]any{}, value)
		default:
			result[name] = value
		}
	}
	return result
}

// applyItems returns the items of after. Each one that was in before keeps what raw has in addition.
func applyItems(raw, before, after []any) []any {
	start, end := 0, 0 // the number of equal items at the beginning and at the end
	for start < min(len(before), len(after)) && reflect.DeepEqual(before[start], after[start]) {
		start++
	}
	for end < min(len(before), len(after))-start &&
		reflect.DeepEqual(before[len(before)-1-end], after[len(after)-1-end]) {
		end++
	}
	result := slices.Clone(raw[:start])
	changed := applyChangedItems(raw[start:len(raw)-end], before[start:len(before)-end], after[start:len(after)-end])
	return append(append(result, changed...), raw[len(raw)-end:]...)
}

func applyChangedItems(raw, before, after []any) []any {
	used := make([]bool, len(before))
	origin := make([]int, len(after))
	// An item comes from an equal one, otherwise from one with its name, otherwise from the one with its index.
	for j := range after {
		origin[j] = -1
		if j < len(before) && reflect.DeepEqual(before[j], after[j]) {
			origin[j], used[j] = j, true
		}
	}
	for _, keyOf := range []func(item any) any{encodingOf, nameIn} {
		unused := map[any][]int{}
		for i, item := range before {
			if key := keyOf(item); !used[i] && key != nil {
				unused[key] = append(unused[key], i)
			}
		}
		for j, item := range after {
			if origin[j] >= 0 {
				continue
			}
			if key := keyOf(item); len(unused[key]) > 0 {
				origin[j], unused[key] = unused[key][0], unused[key][1:]
				used[origin[j]] = true
			}
		}
	}
	result := make([]any, len(after))
	for j, item := range after {
		i := origin[j]
		if i < 0 && len(before) == len(after) && !used[j] && nameIn(before[j]) == nil {
			i = j
		}
		if i < 0 {
			result[j] = item
		} else {
			result[j] = apply(raw[i], before[i], item)
		}
	}
	return result
}

// encodingOf returns the encoding of an item, which is the same for equal items.
func encodingOf(item any) any {
	data, err := json.Marshal(item)
	if err != nil {
		return nil
	}
	return string(data)
}

// nameIn returns the field name of an item, or nil.
func nameIn(item any) any {
	fields, ok := item.(map[string]any)
	if !ok {
		return nil
	}
	name, ok := fields["name"].(string)
	if !ok {
		return nil
	}
	return name
}

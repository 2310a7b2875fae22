package webhook

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// MarshalJSON writes the value null too, which omitempty would leave out.
func (o operation) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"op": o.Op, "path": o.Path}
	if o.Op != "remove" {
		fields["value"] = o.Value
	}
	return json.Marshal(fields)
}

// patchFor returns the JSON patch that applies the difference between before and after to raw, or nil if there is none.
// before is raw as its Go type shows it: raw may have fields that the type lacks, and lack fields that the type always
// encodes. Neither becomes a part of the patch.
func patchFor(raw []byte, before, after any) ([]byte, error) {
	var contents [3]any
	for i, obj := range []any{before, after} {
		data, err := json.Marshal(obj)
		if err != nil {
			return nil, err
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &contents[i]); err != nil {
			return nil, err
		}
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &contents[2]); err != nil {
		return nil, err
	}
	operations := diff(nil, "", contents[2], apply(contents[2], contents[0], contents[1]))
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
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
		switch {
		case ok && reflect.DeepEqual(old, value): // unchanged
		case ok && raw[name] != nil:
			result[name] = apply(raw[name], old, value)
		default:
			result[name] = value
		}
	}
	return result
}

// maxCompared is the maximum number of items that are compared with each other: more would take seconds.
const maxCompared = 1000

// applyItems returns the items of after. Each one that was in before keeps what raw has in addition.
func applyItems(raw, before, after []any) []any {
	start, end := 0, 0 // the number of equal items at the begin and at the end
	for start < min(len(before), len(after)) && reflect.DeepEqual(before[start], after[start]) {
		start++
	}
	for end < min(len(before), len(after))-start && reflect.DeepEqual(before[len(before)-1-end], after[len(after)-1-end]) {
		end++
	}
	result := slices.Clone(raw[:start])
	changed := applyChangedItems(raw[start:len(raw)-end], before[start:len(before)-end], after[start:len(after)-end])
	return append(append(result, changed...), raw[len(raw)-end:]...)
}

func applyChangedItems(raw, before, after []any) []any {
	if max(len(before), len(after)) > maxCompared {
		if len(before) != len(after) {
			return after
		}
		result := make([]any, len(after))
		for i := range after {
			result[i] = apply(raw[i], before[i], after[i])
		}
		return result
	}
	used := make([]bool, len(before))
	result := make([]any, len(after))
	origin := make([]int, len(after))
	// An item comes from an equal one, otherwise from one with its name, otherwise from the one with its index.
	for j := range after {
		origin[j] = -1
	}
	for _, same := range []func(i, j int) bool{
		func(i, j int) bool { return i == j && reflect.DeepEqual(before[i], after[j]) },
		func(i, j int) bool { return reflect.DeepEqual(before[i], after[j]) },
		func(i, j int) bool { name := nameOf(before[i]); return name != nil && name == nameOf(after[j]) },
		func(i, j int) bool { return i == j && nameOf(before[i]) == nil && len(before) == len(after) },
	} {
		for j := range after {
			for i := 0; i < len(before) && origin[j] < 0; i++ {
				if !used[i] && same(i, j) {
					origin[j], used[i] = i, true
				}
			}
		}
	}
	for j, i := range origin {
		if i < 0 {
			result[j] = after[j]
		} else {
			result[j] = apply(raw[i], before[i], after[j])
		}
	}
	return result
}

// nameOf returns the field name of an item, or nil.
func nameOf(item any) any {
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

// diff appends the operations that change a to b.
func diff(operations []operation, path string, a, b any) []operation {
	if reflect.DeepEqual(a, b) {
		return operations
	}
	if aFields, ok := a.(map[string]any); ok {
		if bFields, ok := b.(map[string]any); ok {
			return diffFields(operations, path, aFields, bFields)
		}
	}
	if aItems, ok := a.([]any); ok {
		if bItems, ok := b.([]any); ok {
			return diffItems(operations, path, aItems, bItems)
		}
	}
	return append(operations, operation{Op: "replace", Path: path, Value: b})
}

func diffFields(operations []operation, path string, a, b map[string]any) []operation {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			operations = append(operations, operation{Op: "remove", Path: path + "/" + escape(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		old, ok := a[name]
		if !ok {
			operations = append(operations, operation{Op: "add", Path: path + "/" + escape(name), Value: b[name]})
			continue
		}
		operations = diff(operations, path+"/"+escape(name), old, b[name])
	}
	return operations
}

// diffItems leaves the equal items at the begin and at the end alone.
func diffItems(operations []operation, path string, a, b []any) []operation {
	start := 0
	for start < len(a) && start < len(b) && reflect.DeepEqual(a[start], b[start]) {
		start++
	}
	aEnd, bEnd := len(a), len(b)
	for aEnd > start && bEnd > start && reflect.DeepEqual(a[aEnd-1], b[bEnd-1]) {
		aEnd--
		bEnd--
	}
	at := func(i int) string { return path + "/" + strconv.Itoa(i) }
	i := start
	for ; i < aEnd && i < bEnd; i++ {
		operations = diff(operations, at(i), a[i], b[i])
	}
	for j := aEnd - 1; j >= i; j-- {
		operations = append(operations, operation{Op: "remove", Path: at(j)})
	}
	for ; i < bEnd; i++ {
		operations = append(operations, operation{Op: "add", Path: at(i), Value: b[i]})
	}
	return operations
}

// escape returns a name as a part of a JSON pointer (RFC 6901).
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

package webhook

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/wire"
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
// before is the encoded object of the Go type that raw was decoded into: raw may have fields that the type lacks, and
// lack fields that the type always encodes. Neither becomes a part of the patch.
func patchFor(raw, before, after []byte) ([]byte, error) {
	operations, err := patchValue(nil, "", raw, before, after)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	return json.Marshal(operations)
}

// patchValue appends the operations for the value at the path. It decodes only what has changed: one Go type has one
// encoding of a value, so equal bytes are equal values.
func patchValue(operations []operation, path string, raw, before, after []byte) ([]operation, error) {
	if bytes.Equal(before, after) {
		return operations, nil
	}
	if isObject(raw) && isObject(before) && isObject(after) {
		return patchFields(operations, path, raw, before, after)
	}
	if item, ok := changedItem(raw, before, after); ok {
		return patchValue(operations, path+"/"+strconv.Itoa(item.index), item.raw, item.before, item.after)
	}
	var contents [3]any
	for i, data := range [][]byte{raw, before, after} {
		var err error
		if contents[i], err = decodeValue(data); err != nil {
			return nil, err
		}
	}
	return diff(operations, path, contents[0], apply(contents[0], contents[1], contents[2])), nil
}

// decodeValue decodes JSON. Numbers keep their text, because neither int64 nor float64 can hold every number of a Go
// type.
func decodeValue(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func isObject(data []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) }

// item is an item of a list in three documents.
type item struct {
	index              int
	raw, before, after []byte
}

// changedItem returns the only item that differs between two lists, if it has the same name in both.
func changedItem(raw, before, after []byte) (changed item, ok bool) {
	var lists [3][][]byte
	for i, data := range [][]byte{raw, before, after} {
		err := wire.EachItem(data, func(item []byte) bool { lists[i] = append(lists[i], item); return true })
		if err != nil || len(lists[i]) != len(lists[0]) {
			return changed, false
		}
	}
	for i, old := range lists[1] {
		if bytes.Equal(old, lists[2][i]) {
			continue
		}
		if ok {
			return changed, false
		}
		changed, ok = item{i, lists[0][i], old, lists[2][i]}, true
	}
	return changed, ok && bytes.Equal(encodedName(changed.before), encodedName(changed.after))
}

// encodedName returns the field name of an item as it is encoded, or nil.
func encodedName(item []byte) (encoded []byte) {
	_ = wire.Fields(item, func(name string, value []byte) { // an error means that the item is not an object
		if name == "name" && bytes.HasPrefix(value, []byte(`"`)) {
			encoded = value
		}
	})
	return encoded
}

// patchFields appends the operations for the fields of an object, those that remove fields first.
func patchFields(operations []operation, path string, raw, before, after []byte) ([]operation, error) {
	var fields [3]map[string][]byte
	for i, data := range [][]byte{raw, before, after} {
		fields[i] = map[string][]byte{}
		if err := wire.Fields(data, func(name string, value []byte) { fields[i][name] = value }); err != nil {
			return nil, err
		}
	}
	rawFields, beforeFields, afterFields := fields[0], fields[1], fields[2]
	for _, name := range slices.Sorted(maps.Keys(beforeFields)) {
		_, exists := rawFields[name]
		if _, kept := afterFields[name]; exists && !kept {
			operations = append(operations, operation{Op: "remove", Path: path + "/" + escape(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(afterFields)) {
		current, exists := rawFields[name]
		value, old := afterFields[name], beforeFields[name]
		if bytes.Equal(old, value) {
			continue
		}
		at := path + "/" + escape(name)
		var err error
		switch {
		case !exists:
			var decoded any
			decoded, err = decodeValue(value)
			operations = append(operations, operation{Op: "add", Path: at, Value: decoded})
		case old == nil && isObject(current):
			// The Go type leaves out an empty struct, for which raw has only fields that the type lacks.
			operations, err = patchValue(operations, at, current, []byte("{}"), value)
		case old == nil:
			// The Go type leaves out an empty value that raw has, so raw is before.
			operations, err = patchValue(operations, at, current, current, value)
		default:
			operations, err = patchValue(operations, at, current, old, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return operations, nil
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
	for _, keyOf := range []func(item any) any{encodingOf, nameOf} {
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
		if i < 0 && len(before) == len(after) && !used[j] && nameOf(before[j]) == nil {
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

// diffItems leaves the equal items at the beginning and at the end alone.
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
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

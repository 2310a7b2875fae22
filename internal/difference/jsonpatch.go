package difference

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// Operation is an operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// JSONPatch returns the JSON patch that applies the difference between before and after to raw, or nil if there is
// none. before and after are the encodings of two states of one Go type, and raw is the JSON that before was decoded
// from: raw may have fields that the type lacks, and lack fields that the type always encodes. Neither becomes a part
// of the patch.
//
// It decodes no values: one Go type has one encoding of a value, so equal bytes are equal values, and numbers keep
// their text.
func JSONPatch(raw, before, after []byte) ([]byte, error) {
	operations, err := patchValue(nil, "", raw, before, after)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	return json.Marshal(operations)
}

// patchValue appends the operations for the value at the path.
func patchValue(operations []Operation, path string, raw, before, after []byte) ([]Operation, error) {
	switch {
	case bytes.Equal(before, after):
		return operations, nil
	case isA('{', raw, before, after):
		return patchFields(operations, path, raw, before, after)
	case isA('[', raw, before, after):
		items, err := itemsOf(raw, before, after)
		if err != nil {
			return nil, err
		}
		if len(items[0]) == len(items[1]) {
			return patchItems(operations, path, items[0], items[1], items[2])
		}
	}
	if bytes.Equal(raw, after) {
		return operations, nil
	}
	return append(operations, Operation{Op: "replace", Path: path, Value: after}), nil
}

// isA reports whether all values begin with this byte.
func isA(first byte, values ...[]byte) bool {
	return !slices.ContainsFunc(values, func(data []byte) bool {
		data = bytes.TrimLeft(data, " \t\r\n")
		return len(data) == 0 || data[0] != first
	})
}

// patchFields appends the operations for the fields of an object, those that remove fields first.
func patchFields(operations []Operation, path string, raw, before, after []byte) ([]Operation, error) {
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
			operations = append(operations, Operation{Op: "remove", Path: path + Pointer(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(afterFields)) {
		current, exists := rawFields[name]
		old, value := beforeFields[name], afterFields[name]
		switch {
		case bytes.Equal(old, value):
			continue
		case !exists:
			operations = append(operations, Operation{Op: "add", Path: path + Pointer(name), Value: value})
			continue
		case old == nil && isA('{', current):
			old = []byte("{}") // the type leaves out an empty struct, for which raw has only fields that the type lacks
		case old == nil:
			old = current // the type leaves out an empty value that raw has
		}
		var err error
		if operations, err = patchValue(operations, path+Pointer(name), current, old, value); err != nil {
			return nil, err
		}
	}
	return operations, nil
}

// itemsOf returns the items of lists.
func itemsOf(lists ...[]byte) (items [3][][]byte, err error) {
	for i, data := range lists {
		err = wire.EachItem(data, func(item []byte) bool { items[i] = append(items[i], item); return true })
		if err != nil {
			return items, err
		}
	}
	return items, nil
}

// patchItems appends the operations for the items of a list. Each item that was in before keeps what raw has in
// addition. Equal items at the beginning and at the end are left alone.
func patchItems(operations []Operation, path string, raw, before, after [][]byte) ([]Operation, error) {
	start, end := 0, 0
	shorter := min(len(before), len(after))
	for start < shorter && bytes.Equal(before[start], after[start]) {
		start++
	}
	for end < shorter-start && bytes.Equal(before[len(before)-1-end], after[len(after)-1-end]) {
		end++
	}
	raw, before, after = raw[start:len(raw)-end], before[start:len(before)-end], after[start:len(after)-end]
	at := func(i int) string { return path + "/" + strconv.Itoa(start+i) }
	for i, origin := range originsOf(before, after) {
		if origin == i {
			var err error
			if operations, err = patchValue(operations, at(i), raw[i], before[i], after[i]); err != nil {
				return nil, err
			}
			continue
		}
		op, value := "add", after[i]
		if i < len(before) {
			op = "replace"
		}
		if origin >= 0 {
			var err error
			if value, err = changedItem(raw[origin], before[origin], value); err != nil {
				return nil, err
			}
		}
		operations = append(operations, Operation{Op: op, Path: at(i), Value: value})
	}
	for i := len(before) - 1; i >= len(after); i-- {
		operations = append(operations, Operation{Op: "remove", Path: at(i)})
	}
	return operations, nil
}

// originsOf returns the index in before of each item in after: of an equal one, otherwise of one with its name,
// otherwise of the one with its index; -1 for a new item.
func originsOf(before, after [][]byte) []int {
	origins, used := make([]int, len(after)), make([]bool, len(before))
	for j := range after {
		origins[j] = -1
		if j < len(before) && bytes.Equal(before[j], after[j]) {
			origins[j], used[j] = j, true
		}
	}
	for _, keyOf := range []func(item []byte) []byte{func(item []byte) []byte { return item }, nameOf} {
		unused := map[string][]int{}
		for i, item := range before {
			if key := keyOf(item); !used[i] && key != nil {
				unused[string(key)] = append(unused[string(key)], i)
			}
		}
		for j, item := range after {
			if origins[j] >= 0 {
				continue
			}
			if key := string(keyOf(item)); len(unused[key]) > 0 {
				origins[j], unused[key] = unused[key][0], unused[key][1:]
				used[origins[j]] = true
			}
		}
	}
	for j := range after {
		if origins[j] < 0 && len(before) == len(after) && !used[j] && nameOf(before[j]) == nil {
			origins[j] = j
		}
	}
	return origins
}

// nameOf returns the field name of an item as it is encoded, or nil.
func nameOf(item []byte) (encoded []byte) {
	_ = wire.Fields(item, func(name string, value []byte) { // an error means that the item is not an object
		if name == "name" && isA('"', value) {
			encoded = value
		}
	})
	return encoded
}

// changedItem returns an item with the difference between before and after, which are equal or have one name.
func changedItem(raw, before, after []byte) ([]byte, error) {
	if !isA('{', raw) && !bytes.Equal(before, after) {
		return after, nil
	}
	patch, err := JSONPatch(raw, before, after)
	if err != nil || patch == nil {
		return raw, err
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return operations.Apply(raw)
}

// Pointer returns the JSON pointer (RFC 6901) of a field.
func Pointer(names ...string) string {
	var pointer strings.Builder
	for _, name := range names {
		if strings.ContainsAny(name, "~/") { // common names contain neither; the order of the two replacements matters
			name = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
		}
		pointer.WriteByte('/')
		pointer.WriteString(name)
	}
	return pointer.String()
}

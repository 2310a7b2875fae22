package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FieldChange is one field that differs between two states of an object.
type FieldChange struct {
	// Path names the field in the usual notation: spec.replicas, metadata.labels[example.com/team],
	// status.conditions[Ready].reason, spec.containers[web].image, spec.rules[0].
	Path string
	// From and To are its values as JSON. Empty: the field is absent.
	From, To string
}

// isTime reports whether the field's new value is a time, and its old value a time or absent.
func (c FieldChange) isTime() bool {
	return looksLikeTime(c.To) && (c.From == "" || looksLikeTime(c.From))
}

// looksLikeTime reports whether encoded is the JSON of a metav1.Time or MicroTime.
func looksLikeTime(encoded string) bool {
	if len(encoded) < len(`"2006-01-02T15:04:05Z"`) || encoded[0] != '"' || encoded[11] != 'T' {
		return false
	}
	_, err := time.Parse(time.RFC3339, strings.Trim(encoded, `"`))
	return err == nil
}

// Diff returns the fields that differ between two states of an object, ordered by path and at most limit, and the
// total number of such fields.
//
// It ignores the fields that identify an object or change in every write: apiVersion, kind, and in the metadata uid,
// resourceVersion, generation, creationTimestamp, managedFields and selfLink. A null equals an absent field. The
// elements of a list of objects are compared by their name, type or key, if every element has a unique one, and
// otherwise by their index. Any other list is one value. A value that only one state has is one field, however large
// it is.
func Diff(before, after map[string]any, limit int) (changes []FieldChange, total int) {
	d := differ{limit: limit}
	d.maps("", before, after)
	return d.changes, d.total
}

type differ struct {
	limit   int
	changes []FieldChange
	total   int
}

func ignored(path string) bool {
	switch path {
	case "apiVersion", "kind", "metadata.uid", "metadata.resourceVersion", "metadata.generation",
		"metadata.creationTimestamp", "metadata.managedFields", "metadata.selfLink":
		return true
	}
	return false
}

func (d *differ) maps(path string, before, after map[string]any) {
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, both := before[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if field := join(path, name); !ignored(field) {
			d.values(field, before[name], after[name])
		}
	}
}

// join appends a name to a path. A name with dots or slashes, as labels have, is put in brackets.
func join(path, name string) string {
	if strings.ContainsAny(name, "./") {
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d *differ) values(path string, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			d.maps(path, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok && isObjects(b) && isObjects(a) {
			d.lists(path, b, a)
			return
		}
	}
	// The usual case, an unchanged value, must not need the encoding.
	if sameScalar(before, after) {
		return
	}
	from, to := encode(before), encode(after)
	if from == to {
		return
	}
	d.total++
	if len(d.changes) < d.limit {
		d.changes = append(d.changes, FieldChange{Path: path, From: from, To: to})
	}
}

func sameScalar(before, after any) bool {
	switch b := before.(type) {
	case string:
		a, ok := after.(string)
		return ok && a == b
	case bool:
		a, ok := after.(bool)
		return ok && a == b
	case int64:
		a, ok := after.(int64)
		return ok && a == b
	}
	return false
}

// encode returns a value as JSON, in which 3 and 3.0 are equal.
func encode(value any) string {
	if value == nil {
		return ""
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // not reachable for an object's values: they can all be encoded
	}
	return string(encoded)
}

func isObjects(list []any) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool {
		_, ok := e.(map[string]any)
		return !ok
	})
}

// lists compares two lists of objects.
func (d *differ) lists(path string, before, after []any) {
	for _, key := range []string{"name", "type", "key"} {
		b, okB := byKey(before, key)
		a, okA := byKey(after, key)
		if !okB || !okA {
			continue
		}
		names := slices.Collect(maps.Keys(b))
		for name := range a {
			if _, both := b[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			d.values(path+"["+name+"]", b[name], a[name])
		}
		return
	}
	for i := range max(len(before), len(after)) {
		d.values(path+"["+strconv.Itoa(i)+"]", at(before, i), at(after, i))
	}
}

func at(list []any, i int) any {
	if i >= len(list) {
		return nil
	}
	return list[i]
}

// byKey returns the elements by their names in the field key. ok is false if an element has no name, or if two
// elements have the same name.
func byKey(list []any, key string) (elements map[string]any, ok bool) {
	elements = make(map[string]any, len(list))
	for _, e := range list {
		name, ok := e.(map[string]any)[key].(string)
		if _, twice := elements[name]; !ok || twice {
			return nil, false
		}
		elements[name] = e
	}
	return elements, true
}

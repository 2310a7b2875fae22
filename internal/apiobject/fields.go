package apiobject

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// ParsePath splits a path such as `a.b["c.d"].e`.
func ParsePath(path string) (steps []string, err error) {
	rest := path
	for first := true; first || rest != ""; first = false {
		if quoted, found := strings.CutPrefix(rest, "["); found && !first {
			literal, err := strconv.QuotedPrefix(quoted)
			if err != nil {
				return nil, errors.New(`want a quoted key after "["`)
			}
			key, err := strconv.Unquote(literal)
			if err != nil {
				return nil, fmt.Errorf("the key %s: %w", literal, err)
			}
			if rest, found = strings.CutPrefix(quoted[len(literal):], "]"); !found {
				return nil, fmt.Errorf(`want "]" after %s`, literal)
			}
			steps = append(steps, key)
			continue
		}
		if !first {
			var found bool
			if rest, found = strings.CutPrefix(rest, "."); !found {
				return nil, fmt.Errorf(`want "." or "[" before %q`, rest)
			}
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, errors.New("a name is empty")
		}
		steps = append(steps, rest[:end])
		rest = rest[end:]
	}
	return steps, nil
}

// StepField returns the type of the field or map entry with this name. fields are the fields on the way, embedded
// structs included; they are nil for the entry of a map.
func StepField(t reflect.Type, name string) (next reflect.Type, fields []reflect.StructField, err error) {
	t = ElementType(t)
	switch {
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		return t.Elem(), nil, nil
	case t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil, nil, fmt.Errorf("%s has no fields", t)
	}
	if fields = FindField(t, name); fields == nil {
		return nil, nil, fmt.Errorf("%s has no such field%s", t, suggestion(t, name))
	}
	return fields[len(fields)-1].Type, fields, nil
}

// ElementType removes pointers and lists from a type.
func ElementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Array ||
		t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	return t
}

// FindField finds the field with the JSON name, also in embedded structs: fields are the embedded structs and the
// field, or nil if there is no such field.
func FindField(t reflect.Type, name string) (fields []reflect.StructField) {
	for f := range StructFields(t) {
		if jsonName(f) == name {
			return []reflect.StructField{f}
		}
	}
	for f := range StructFields(t) {
		if inner := ElementType(f.Type); isInline(f) && inner.Kind() == reflect.Struct {
			if fields = FindField(inner, name); fields != nil {
				return append([]reflect.StructField{f}, fields...)
			}
		}
	}
	return nil
}

// StructFields returns the exported and the embedded fields of a struct.
func StructFields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for f := range t.Fields() {
			if (f.IsExported() || f.Anonymous) && !yield(f) {
				return
			}
		}
	}
}

// isInline reports whether the JSON fields of an embedded struct belong to the outer object.
func isInline(f reflect.StructField) bool {
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return f.Anonymous && tag == ""
}

// jsonName returns the JSON name of a field, or "".
func jsonName(f reflect.StructField) string {
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case tag == "-" || isInline(f):
		return ""
	case tag == "":
		return f.Name
	default:
		return tag
	}
}

// suggestion returns a hint with the most similar field name.
func suggestion(t reflect.Type, name string) string {
	best, bestDistance := "", len(name)/2+2
	var look func(reflect.Type)
	look = func(t reflect.Type) {
		for f := range StructFields(t) {
			if inner := ElementType(f.Type); isInline(f) && inner.Kind() == reflect.Struct {
				look(inner)
				continue
			}
			if d := distance(strings.ToLower(name), strings.ToLower(jsonName(f))); d < bestDistance {
				best, bestDistance = jsonName(f), d
			}
		}
	}
	look(t)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": is it %q?", best)
}

// distance returns the number of letters to change, add or remove.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

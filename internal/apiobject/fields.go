package apiobject

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
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
	for other, fields := range Fields(t) {
		if other == name {
			return fields
		}
	}
	return nil
}

// Fields returns the JSON fields of a struct by name, each after the embedded structs on the way to it. A field comes
// before those in embedded structs, which it hides.
func Fields(t reflect.Type) iter.Seq2[string, []reflect.StructField] {
	return func(yield func(string, []reflect.StructField) bool) { eachField(t, nil, yield) }
}

// maxEmbedded is the depth of embedded structs: a type can embed a pointer to itself.
const maxEmbedded = 10

func eachField(t reflect.Type, outer []reflect.StructField, yield func(string, []reflect.StructField) bool) bool {
	var embedded []reflect.StructField
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		isStruct := f.Anonymous && structOf(f.Type).Kind() == reflect.Struct
		switch {
		case tag == "-" || !isStruct && !f.IsExported():
		case isStruct && name == "":
			embedded = append(embedded, f)
		case !yield(cmp.Or(name, f.Name), append(slices.Clip(outer), f)):
			return false
		}
	}
	for _, f := range embedded {
		if len(outer) < maxEmbedded && !eachField(structOf(f.Type), append(slices.Clip(outer), f), yield) {
			return false
		}
	}
	return true
}

// structOf returns the type of an embedded struct, of which t may be a pointer.
func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// suggestion returns a hint with the most similar field name.
func suggestion(t reflect.Type, name string) string {
	best, bestDistance := "", len(name)/2+2
	for other := range Fields(t) {
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d < bestDistance {
			best, bestDistance = other, d
		}
	}
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

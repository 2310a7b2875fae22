package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// parsePath splits a path such as `a.b["c.d"].e`.
func parsePath(path string) (steps []string, err error) {
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

// place is the end of a partial path: the Go type (nil if unknown), and the nodes of both formats (proto is nil for
// fields without protobuf encoding).
type place struct {
	t     reflect.Type
	json  *jsonNode
	proto *protoNode
}

// step moves to the field or map entry with this name.
func (p place) step(name string) (place, error) {
	next := place{json: p.json.add(name)}
	if p.t == nil {
		return next, nil
	}
	t := elementType(p.t)
	switch {
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		next.t = t.Elem()
		if p.proto != nil {
			next.proto = p.proto.entry(name, elementType(t.Elem()))
		}
		return next, nil
	case t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return next, fmt.Errorf("%s has no fields", t)
	}
	field, numbers, found := findField(t, name)
	if !found {
		return next, fmt.Errorf("%s has no such field%s", t, suggestion(t, name))
	}
	next.t = field.Type
	node := p.proto
	for _, number := range numbers {
		if node == nil || number.num == 0 {
			node = nil
			break
		}
		node = node.add(number.num)
		node.maps = mapFields(number.message)
	}
	next.proto = node
	return next, nil
}

// elementType removes pointers and lists from a type.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Array ||
		t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	return t
}

func newProtoNode(t reflect.Type) *protoNode { return &protoNode{maps: mapFields(t)} }

// entry returns the node for one entry of the map n.
func (n *protoNode) entry(key string, value reflect.Type) *protoNode {
	if n.keys == nil {
		n.keys = map[string]*protoNode{}
	}
	if n.keys[key] == nil {
		n.keys[key] = newProtoNode(value)
	}
	return n.keys[key]
}

// mapFields returns the numbers of the map fields of t.
func mapFields(t reflect.Type) (nums []int32) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if num := protoNumber(f); num != 0 && f.Type.Kind() == reflect.Map {
			nums = append(nums, num)
		}
	}
	return nums
}

// fieldNumber is one step in protobuf: the field's number and the type of its content.
type fieldNumber struct {
	num     int32
	message reflect.Type
}

// findField finds the field with the JSON name, also in embedded structs. An embedded struct is one more step in
// protobuf, because it is a message there.
func findField(t reflect.Type, name string) (field reflect.StructField, numbers []fieldNumber, found bool) {
	for f := range structFields(t) {
		if jsonName(f) == name {
			return f, []fieldNumber{{protoNumber(f), elementType(f.Type)}}, true
		}
	}
	for f := range structFields(t) {
		inner := elementType(f.Type)
		if !isInline(f) || inner.Kind() != reflect.Struct {
			continue
		}
		if field, numbers, found = findField(inner, name); found {
			return field, append([]fieldNumber{{protoNumber(f), inner}}, numbers...), true
		}
	}
	return reflect.StructField{}, nil, false
}

func structFields(t reflect.Type) func(yield func(reflect.StructField) bool) {
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

// protoNumber returns the protobuf number of a field, or 0.
func protoNumber(f reflect.StructField) int32 {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	num, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return 0
	}
	return int32(num)
}

// suggestion returns a hint with the most similar field name.
func suggestion(t reflect.Type, name string) string {
	best, bestDistance := "", len(name)/2+2
	var look func(reflect.Type)
	look = func(t reflect.Type) {
		for f := range structFields(t) {
			if inner := elementType(f.Type); isInline(f) && inner.Kind() == reflect.Struct {
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

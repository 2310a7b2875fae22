package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// contentOf returns the fields of an object as in JSON, in new maps that the caller may change. It omits the
// unset fields of typed objects.
func contentOf(obj kube.Object) (map[string]any, error) { return (&shapes{}).contentOf(obj) }

// contentOf is the function contentOf with cached shapes.
func (s *shapes) contentOf(obj kube.Object) (map[string]any, error) {
	content, err := difference.Content(obj)
	if _, isUnstructured := obj.(*unstructured.Unstructured); err == nil && !isUnstructured {
		s.dropUnset(reflect.ValueOf(obj), content)
	}
	return content, err
}

// contents caches the fields of objects during one call, so that an object is encoded once for several
// comparisons. It must be used by one goroutine. Callers must not change its results.
type contents struct {
	shapes *shapes
	known  map[kube.Object]map[string]any
}

func newContents(s *shapes) *contents { return &contents{shapes: s} }

// of returns the fields of an object, which must not change while c is used.
func (c *contents) of(obj kube.Object) (map[string]any, error) {
	if content, ok := c.known[obj]; ok {
		return content, nil
	}
	content, err := c.shapes.contentOf(obj)
	if err != nil {
		return nil, err
	}
	if c.known == nil {
		c.known = map[kube.Object]map[string]any{}
	}
	c.known[obj] = content
	return content, nil
}

// shapes caches how the fields of Go structs are encoded. Without the cache, inspecting the type of a
// Deployment took half of the time of an unchanged apply.
type shapes struct {
	known sync.Map // from reflect.Type to shape; one entry per struct type of the program's objects
}

// shape is the encoding of a struct. It has no fields for a struct that encodes itself.
type shape []shapedField

type shapedField struct {
	index    int
	name     string // in JSON
	inline   bool   // its own fields are encoded in its place
	optional bool   // it is a struct that may be omitted
}

func (s *shapes) of(t reflect.Type) shape {
	if known, ok := s.known.Load(t); ok {
		return known.(shape)
	}
	var fields shape
	if !encodesItself(t) {
		for i := range t.NumField() {
			if field := t.Field(i); field.IsExported() || field.Anonymous { // encoding/json skips the others
				fields = append(fields, shapeOf(i, field))
			}
		}
	}
	s.known.Store(t, fields)
	return fields
}

func shapeOf(index int, field reflect.StructField) shapedField {
	name, flags, _ := strings.Cut(field.Tag.Get("json"), ",")
	has := func(flag string) bool { return strings.Contains(","+flags+",", ","+flag+",") }
	f := shapedField{
		index: index, name: name, inline: name == "" && (field.Anonymous || has("inline")),
		optional: field.Type.Kind() == reflect.Struct && (has("omitempty") || has("omitzero")),
	}
	if name == "" {
		f.name = field.Name
	}
	return f
}

// encodesItself reports whether a type implements its own JSON encoding, like times, quantities, and types for numbers
// or strings.
func encodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
		pointer.Implements(reflect.TypeFor[interface{ ToUnstructured() any }]())
}

// dropUnset removes the unset fields from content, which is value as decoded JSON:
//
//   - nulls, which encode nil slices and maps, and zero times,
//   - empty structs with omitempty that are not behind a pointer, because Go cannot express that they are unset: a
//     Deployment's strategy, a container's resources.
//
// An empty value behind a pointer is set: emptyDir: {}. So are the elements of lists and maps, and structs without
// omitempty: a NetworkPolicy's podSelector {} selects all Pods.
func (s *shapes) dropUnset(value reflect.Value, content any) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			s.dropUnset(value.Elem(), content)
		}
	case reflect.Struct:
		if fields, ok := content.(map[string]any); ok {
			s.dropUnsetFields(value, fields)
		}
	case reflect.Slice, reflect.Array:
		if elements, ok := content.([]any); ok && len(elements) == value.Len() {
			for i, element := range elements {
				s.dropUnset(value.Index(i), element)
			}
		}
	case reflect.Map:
		elements, ok := content.(map[string]any)
		if !ok || value.Type().Key().Kind() != reflect.String {
			return
		}
		for entries := value.MapRange(); entries.Next(); {
			s.dropUnset(entries.Value(), elements[entries.Key().String()])
		}
	}
}

// dropUnsetFields is dropUnset for the fields of a struct.
func (s *shapes) dropUnsetFields(value reflect.Value, content map[string]any) {
	for _, field := range s.of(value.Type()) {
		if field.inline {
			s.dropUnset(value.Field(field.index), content)
			continue
		}
		inner, child := value.Field(field.index), content[field.name]
		s.dropUnset(inner, child)
		// A null, a missing field, or an optional struct without a value.
		if rest, isMap := child.(map[string]any); child == nil || field.optional &&
			(isMap && len(rest) == 0 || inner.IsZero()) {
			delete(content, field.name)
		}
	}
}

// appendZeros appends to digestible which structs in value that may be omitted are zero. dropUnset drops those, but
// other values may have the same encoding: the quantity 0, for example. It also appends the types in interfaces. Values
// of a type with the same encoding and the same appended bytes have the same content.
func (s *shapes) appendZeros(digestible []byte, value reflect.Value) []byte {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return digestible
		}
		if value.Kind() == reflect.Interface {
			digestible = fmt.Appendf(digestible, "%p", value.Elem().Type())
		}
		return s.appendZeros(digestible, value.Elem())
	case reflect.Struct:
		for _, field := range s.of(value.Type()) {
			inner := value.Field(field.index)
			if field.optional {
				digestible = strconv.AppendBool(digestible, inner.IsZero())
			}
			digestible = s.appendZeros(digestible, inner)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < value.Len() && s.hasFields(value.Type().Elem()); i++ {
			digestible = s.appendZeros(digestible, value.Index(i))
		}
	case reflect.Map:
		if value.Type().Key().Kind() != reflect.String || !s.hasFields(value.Type().Elem()) {
			return digestible
		}
		keys := value.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			digestible = s.appendZeros(digestible, value.MapIndex(key))
		}
	}
	return digestible
}

// hasFields reports whether appendZeros may append something for values of a type.
func (s *shapes) hasFields(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return len(s.of(t)) > 0
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map:
		return true
	}
	return false
}

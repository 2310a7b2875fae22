package difference

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Shapes caches how the fields of Go structs are encoded. Without the cache, inspecting the type of a
// Deployment took half of the time of an unchanged apply.
type Shapes struct {
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

// Content returns the fields of an object as in JSON, in new maps that the caller may change. It omits the unset fields
// of typed objects.
func (s *Shapes) Content(obj kube.Object) (map[string]any, error) {
	content, err := Content(obj)
	return s.withoutUnset(obj, content), err
}

// ContentExcept is like Content, without the fields for which leftOut returns true; see the function ContentExcept.
func (s *Shapes) ContentExcept(obj kube.Object, leftOut func(field, inner string) bool) (map[string]any, error) {
	content, err := ContentExcept(obj, leftOut)
	return s.withoutUnset(obj, content), err
}

// withoutUnset removes the unset fields of a typed object from content.
func (s *Shapes) withoutUnset(obj kube.Object, content map[string]any) map[string]any {
	if _, isUnstructured := obj.(*unstructured.Unstructured); content != nil && !isUnstructured {
		s.DropUnset(reflect.ValueOf(obj), content)
	}
	return content
}

func (s *Shapes) of(t reflect.Type) shape {
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

// DropUnset removes the unset fields from content, which is value as decoded JSON:
//
//   - nulls, which encode nil slices and maps, and zero times,
//   - empty structs with omitempty that are not behind a pointer, because Go cannot express that they are unset: a
//     Deployment's strategy, a container's resources.
//
// An empty value behind a pointer is set: emptyDir: {}. So are the elements of lists and maps, and structs without
// omitempty: a NetworkPolicy's podSelector {} selects all Pods.
func (s *Shapes) DropUnset(value reflect.Value, content any) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			s.DropUnset(value.Elem(), content)
		}
	case reflect.Struct:
		if fields, ok := content.(map[string]any); ok {
			s.dropUnsetFields(value, fields)
		}
	case reflect.Slice, reflect.Array:
		if elements, ok := content.([]any); ok && len(elements) == value.Len() {
			for i, element := range elements {
				s.DropUnset(value.Index(i), element)
			}
		}
	case reflect.Map:
		elements, ok := content.(map[string]any)
		if !ok || value.Type().Key().Kind() != reflect.String {
			return
		}
		for entries := value.MapRange(); entries.Next(); {
			s.DropUnset(entries.Value(), elements[entries.Key().String()])
		}
	}
}

// dropUnsetFields is DropUnset for the fields of a struct.
func (s *Shapes) dropUnsetFields(value reflect.Value, content map[string]any) {
	for _, field := range s.of(value.Type()) {
		if field.inline {
			s.DropUnset(value.Field(field.index), content)
			continue
		}
		inner, child := value.Field(field.index), content[field.name]
		s.DropUnset(inner, child)
		// A null, a missing field, or an optional struct without a value.
		if rest, isMap := child.(map[string]any); child == nil || field.optional &&
			(isMap && len(rest) == 0 || inner.IsZero()) {
			delete(content, field.name)
		}
	}
}

// AppendZeros appends to digestible which structs in value that may be omitted are zero. DropUnset drops those, but
// other values may have the same encoding: the quantity 0, for example. It also appends the types in interfaces. Values
// of a type with the same encoding and the same appended bytes have the same content.
func (s *Shapes) AppendZeros(digestible []byte, value reflect.Value) []byte {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return digestible
		}
		if value.Kind() == reflect.Interface {
			digestible = fmt.Appendf(digestible, "%p", value.Elem().Type())
		}
		return s.AppendZeros(digestible, value.Elem())
	case reflect.Struct:
		for _, field := range s.of(value.Type()) {
			inner := value.Field(field.index)
			if field.optional {
				digestible = strconv.AppendBool(digestible, inner.IsZero())
			}
			digestible = s.AppendZeros(digestible, inner)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < value.Len() && s.hasFields(value.Type().Elem()); i++ {
			digestible = s.AppendZeros(digestible, value.Index(i))
		}
	case reflect.Map:
		if value.Type().Key().Kind() != reflect.String || !s.hasFields(value.Type().Elem()) {
			return digestible
		}
		keys := value.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			digestible = s.AppendZeros(digestible, value.MapIndex(key))
		}
	}
	return digestible
}

// hasFields reports whether AppendZeros may append something for values of a type.
func (s *Shapes) hasFields(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return len(s.of(t)) > 0
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map:
		return true
	}
	return false
}

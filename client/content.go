package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/kube"
)

// contentOf returns the fields of an object as JSON has them: new maps, which the caller may
// change. Of typed objects, fields that nobody has set are left out.
func contentOf(obj kube.Object) (map[string]any, error) { return (&shapes{}).contentOf(obj) }

// contentOf is the function contentOf, for who asks about many objects of a type.
func (s *shapes) contentOf(obj kube.Object) (map[string]any, error) {
	// As JSON, which is what requests consist of. DeepCopy of unstructured objects panics at an
	// int, which people write by hand, and the converter of apimachinery takes fields along that
	// are not exported.
	var value any = obj
	u, isUnstructured := obj.(*unstructured.Unstructured)
	if isUnstructured {
		value = u.Object // its own encoder wants a kind
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(encoded, &content); err != nil {
		return nil, fmt.Errorf("read the fields of the object: %w", err)
	}
	if !isUnstructured {
		s.dropUnset(reflect.ValueOf(obj), content)
	}
	return content, nil
}

// shapes remember how the fields of Go's structs are encoded: asking that of a Deployment's, each
// time, took half of the time of an apply at rest.
type shapes struct {
	known sync.Map // of reflect.Type to shape; as many as the program has types of objects
}

// shape is how a struct is encoded. It has no fields for one that encodes itself.
type shape []shapedField

type shapedField struct {
	index    int
	name     string // in JSON
	inline   bool   // its own fields are encoded in its place
	optional bool   // it is a struct that may be left out
}

func (s *shapes) of(t reflect.Type) shape {
	if known, ok := s.known.Load(t); ok {
		return known.(shape)
	}
	var fields shape
	if !encodesItself(t) {
		for i := range t.NumField() {
			fields = append(fields, shapeOf(i, t.Field(i)))
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

// encodesItself reports whether a type has its own way to JSON: times, quantities, numbers or
// strings.
func encodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
		pointer.Implements(reflect.TypeFor[interface{ ToUnstructured() any }]())
}

// dropUnset removes from content, which is value as JSON has it, what nobody has set:
//
//   - nulls, which nil slices and maps become, and zero times,
//   - empty structs that are not behind a pointer, where their field may be left out
//     (omitempty), for there Go cannot say "not set": a Deployment's strategy, a container's
//     resources.
//
// What is behind a pointer was set, also when it is empty: emptyDir: {}. So was an element of a
// list or map, and a struct whose field may not be left out: a NetworkPolicy's podSelector {}
// selects all Pods.
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
		child, ok := content[field.name]
		switch {
		case !ok:
			continue
		case child == nil:
			delete(content, field.name)
			continue
		}
		inner := value.Field(field.index)
		s.dropUnset(inner, child)
		if rest, isMap := child.(map[string]any); field.optional && (isMap && len(rest) == 0 || inner.IsZero()) {
			delete(content, field.name)
		}
	}
}

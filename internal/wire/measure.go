package wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// TooLargeError is returned for JSON whose value would need more memory than the limit.
type TooLargeError struct{ Limit int64 }

// Error implements error.
func (e TooLargeError) Error() string {
	return fmt.Sprintf("it has so many items that it would need more than %d MiB of memory", e.Limit>>20)
}

const (
	// maxUnknown is the number of unknown fields that Measure reports, and maxUnknownPath the length of their paths.
	maxUnknown     = 100
	maxUnknownPath = 256
	// opaqueSize is the estimate for an object, or an item, of a type with its own decoder.
	opaqueSize = 640
	// mapSize is the memory of a map, which has room for mapSlots entries when it has one.
	mapSize  = 48
	mapSlots = 8
)

// Shapes estimates the memory of values before they are decoded: three bytes of JSON can become a struct of a kilobyte.
// The zero value is ready. It is safe for concurrent use, and remembers the Go types.
type Shapes struct{ known sync.Map } // from reflect.Type to *shape

// shape is how a Go type is decoded, and the memory that it needs in addition to a value of its size.
type shape struct {
	fields map[string]shapeField // of a struct
	// entry and item are the types of the values of a map and of a list; nil if the type is neither.
	entry, item reflect.Type
	// base is the size of an object or array, firstEntry that of the first entry, and the others those of each.
	base, firstEntry, entrySize, itemSize uintptr
}

type shapeField struct {
	path string // of the field in its struct
	t    reflect.Type
}

// Measure returns an estimate of the memory of the value of the type t that a decoder makes of data. It stops at more
// than limit with a TooLargeError. It calls unknown, unless that is nil, with the paths of the first fields that a
// struct lacks, without the indexes of items and the keys of maps.
func (s *Shapes) Measure(data []byte, t reflect.Type, limit int64, unknown func(path string)) (int64, error) {
	m := measurer{scanner: scanner{data: data}, shapes: s, limit: limit, unknown: unknown}
	m.value(t)
	return m.size, m.endOfData()
}

type measurer struct {
	scanner

	shapes      *Shapes
	size, limit int64
	unknown     func(path string)
	reported    int
	path        []string // of the current value
}

func (m *measurer) add(size uintptr) {
	if m.size += int64(size); m.size > m.limit { //nolint:gosec // the size of a type, or the length of data
		m.failWith(TooLargeError{m.limit})
	}
}

// value skips the value at i, which is decoded into the type t.
func (m *measurer) value(t reflect.Type) {
	c := m.peek()
	for t.Kind() == reflect.Pointer && c != 'n' {
		t = t.Elem()
		m.add(t.Size())
	}
	s := m.shapes.of(t)
	isObject, isArray := c == '{' && (s.fields != nil || s.entry != nil), c == '[' && s.item != nil
	if !isObject && !isArray {
		m.add(uintptr(len(m.raw())))
		return
	}
	m.add(s.base)
	m.path = append(m.path, "[]")
	if isObject {
		m.object(s)
	} else {
		for e := (members{}); m.element(&e); {
			m.add(s.itemSize)
			m.value(s.item)
		}
	}
	m.path = m.path[:len(m.path)-1]
}

func (m *measurer) object(s *shape) {
	for e := (members{}); m.next(&e); {
		t := s.entry
		if t == nil {
			key := m.key(e.key)
			field, ok := s.fields[string(key)]
			if !ok {
				m.report(key)
				m.skip()
				continue
			}
			t, m.path[len(m.path)-1] = field.t, field.path
		} else {
			m.add(s.entrySize + uintptr(e.key.end-e.key.start)) //nolint:gosec // a length
			if e.n == 1 {
				m.add(s.firstEntry)
			}
		}
		m.value(t)
	}
}

// report reports the unknown field at the current path.
func (m *measurer) report(name []byte) {
	if m.unknown == nil || m.reported >= maxUnknown {
		return
	}
	m.reported++
	path := append(m.path[:len(m.path)-1:len(m.path)-1], "."+usercode.ShortenTo(string(name), maxUnknownPath))
	m.unknown(usercode.ShortenTo(strings.TrimPrefix(strings.Join(path, ""), "."), maxUnknownPath))
}

// of returns the shape of a type.
func (s *Shapes) of(t reflect.Type) *shape {
	if known, ok := s.known.Load(t); ok {
		return known.(*shape) //nolint:forcetypeassert // no other type is stored
	}
	created := newShape(t)
	s.known.Store(t, created)
	return created
}

// opaque stands for the content of a type with its own decoder.
type opaque struct{}

func newShape(t reflect.Type) *shape {
	implements := func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) }
	switch {
	case implements(reflect.TypeFor[runtime.Unstructured]()):
		return newShape(reflect.TypeFor[any]())
	case t == reflect.TypeFor[opaque]():
		return &shape{entry: t, item: t, entrySize: opaqueSize, itemSize: opaqueSize}
	case implements(reflect.TypeFor[json.Unmarshaler]()) ||
		implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()):
		if isRaw(t) {
			return &shape{}
		}
		return newShape(reflect.TypeFor[opaque]())
	}
	switch t.Kind() {
	case reflect.Interface:
		free := newShape(reflect.TypeFor[map[string]any]())
		list := newShape(reflect.TypeFor[[]any]())
		free.item, free.itemSize = list.item, list.itemSize
		return free
	case reflect.Struct:
		s := &shape{fields: map[string]shapeField{}}
		for name, path := range apiobject.Fields(t) {
			if _, hidden := s.fields[name]; !hidden {
				s.fields[name] = shapeField{"." + name, path[len(path)-1].Type}
			}
		}
		return s
	case reflect.Map:
		// Large keys and values are stored outside of the slots.
		slot := min(t.Key().Size(), 128) + min(t.Elem().Size(), 128)
		return &shape{
			entry: t.Elem(), base: mapSize, firstEntry: mapSlots * slot,
			entrySize: t.Key().Size() + t.Elem().Size() + slot,
		}
	case reflect.Slice:
		return &shape{item: t.Elem(), base: t.Size(), itemSize: 2 * t.Elem().Size()} // it grows
	case reflect.Array:
		return &shape{item: t.Elem()}
	}
	return &shape{}
}

// isRaw reports whether a type with its own decoder keeps the bytes, as runtime.RawExtension does.
func isRaw(t reflect.Type) bool {
	if t.Kind() == reflect.Struct {
		raw, ok := t.FieldByName("Raw")
		return ok && raw.Type == reflect.TypeFor[[]byte]()
	}
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

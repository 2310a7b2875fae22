package informer

import (
	"bytes"
	"math"
	"math/bits"
	"reflect"
	"sync"
)

// maxDepth is the depth to which compareCopies follows values; decoders of JSON have a limit of 10,000 levels.
const maxDepth = 30_000

// compareCopies reports whether a copy of a value has equal fields and shares no memory with it, and returns an
// estimate of the memory of the copy beside its own size: of what pointers, strings, slices and maps refer to. The
// size of a value above limit, or that is too deep, is math.MaxInt64, and such a copy counts as complete.
//
// Fields that are not exported are left out, because a program may share what they refer to. Types that have their
// own decoders, such as resource.Quantity, must copy such fields.
func compareCopies(v, copied reflect.Value, limit int64, fields *structFields) (size int64, complete bool) {
	c := copies{limit: limit, fields: fields, complete: v.IsValid() && copied.IsValid() && v.Type() == copied.Type()}
	if c.complete {
		c.compare(v, copied, 0)
	}
	return c.size, c.complete
}

// copies is a comparison.
type copies struct {
	size, limit int64
	complete    bool // until a difference is found
	fields      *structFields
}

// structFields are the fields of struct types that comparisons look at. It is safe for concurrent use.
type structFields struct{ byType sync.Map } // of reflect.Type to []int

// of returns the indexes of the exported fields, and of embedded structs, whose fields are exported even if their type
// is not.
func (f *structFields) of(t reflect.Type) []int {
	if known, found := f.byType.Load(t); found {
		return known.([]int) //nolint:forcetypeassert // all values have the type
	}
	var indexes []int
	for i := range t.NumField() {
		field := t.Field(i)
		if field.IsExported() || field.Anonymous && field.Type.Kind() == reflect.Struct {
			indexes = append(indexes, i)
		}
	}
	f.byType.Store(t, indexes)
	return indexes
}

// add adds to the size. It reports whether the comparison goes on.
func (c *copies) add(size int64, depth int) bool {
	if c.size += size; c.size > c.limit || c.size < 0 || depth >= maxDepth {
		c.size = math.MaxInt64
	}
	return c.complete && c.size < math.MaxInt64
}

// require ends the comparison if ok is false.
func (c *copies) require(ok bool) bool {
	c.complete = c.complete && ok
	return c.complete
}

func (c *copies) compare(v, copied reflect.Value, depth int) {
	if !c.add(0, depth) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if c.both(v, copied) && c.add(int64(v.Type().Elem().Size()), depth) { //nolint:gosec // the size of a type
			c.compare(v.Elem(), copied.Elem(), depth+1)
		}
	case reflect.Interface:
		if c.require(v.IsNil() == copied.IsNil()) && !v.IsNil() && c.require(v.Elem().Type() == copied.Elem().Type()) {
			c.add(int64(v.Elem().Type().Size()), depth) //nolint:gosec // the size of a type
			c.compare(v.Elem(), copied.Elem(), depth+1)
		}
	case reflect.String:
		c.add(int64(v.Len()), depth)
		c.require(v.String() == copied.String())
	case reflect.Slice:
		c.compareSlices(v, copied, depth)
	case reflect.Map:
		c.compareMaps(v, copied, depth)
	case reflect.Struct:
		for _, i := range c.fields.of(v.Type()) {
			c.compare(v.Field(i), copied.Field(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			c.compare(v.Index(i), copied.Index(i), depth+1)
		}
	default:
		c.require(!v.Comparable() || v.Equal(copied))
	}
}

// both reports whether two pointers, slices or maps are not nil. They must be alike, and must not be the same memory.
// All values without a size have the same address.
func (c *copies) both(v, copied reflect.Value) bool {
	hasSize := v.Kind() == reflect.Map || v.Type().Elem().Size() > 0
	return c.require(v.IsNil() == copied.IsNil()) && !v.IsNil() &&
		c.require(!hasSize || v.UnsafePointer() != copied.UnsafePointer())
}

func (c *copies) compareSlices(v, copied reflect.Value, depth int) {
	if v.Cap() == 0 && copied.Cap() == 0 { // has no size
		c.require(v.IsNil() == copied.IsNil())
		return
	}
	size := int64(copied.Cap()) * int64(v.Type().Elem().Size()) //nolint:gosec // the size of a type
	if !c.both(v, copied) || !c.require(v.Len() == copied.Len()) || !c.add(size, depth) {
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		c.require(bytes.Equal(v.Bytes(), copied.Bytes()))
		return
	}
	for i := range v.Len() {
		c.compare(v.Index(i), copied.Index(i), depth+1)
	}
}

func (c *copies) compareMaps(v, copied reflect.Value, depth int) {
	if !c.both(v, copied) || !c.require(v.Len() == copied.Len()) {
		return
	}
	// A map has room for eight entries, or is a table whose length is a power of two, and which is full to seven
	// eighths at most.
	slots := int64(1) << bits.Len64(max(7, uint64(v.Len())*8/7))                 //nolint:gosec // a length
	c.add(48+slots*int64(v.Type().Key().Size()+v.Type().Elem().Size()+1), depth) //nolint:gosec // the size of types
	for entry := v.MapRange(); c.add(0, depth) && entry.Next(); {
		other := copied.MapIndex(entry.Key())
		if c.require(other.IsValid()) {
			if entry.Key().Kind() == reflect.String {
				c.add(int64(entry.Key().Len()), depth)
			}
			c.compare(entry.Value(), other, depth+1)
		}
	}
}

package cache

import (
	"reflect"
	"testing"
)

// Exported types of other packages embed these: a program must find no method and no field of them.
func TestHolderHasNoExportedMembers(t *testing.T) {
	t.Parallel()
	holder := reflect.TypeFor[Holder[int]]()
	if holder.NumMethod() > 0 {
		t.Errorf("Holder has the method %s", holder.Method(0).Name)
	}
	for field := range holder.Fields() {
		if field.IsExported() {
			t.Errorf("Holder has the field %s", field.Name)
		}
	}
	for method := range reflect.TypeFor[Untyped]().Methods() {
		if method.IsExported() {
			t.Errorf("Untyped has the method %s", method.Name)
		}
	}
}

type change struct {
	name string
	size [64]byte
	Holder[*int]
}

// Change events are delivered often.
func TestOfAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	value := 1
	c := change{name: "x", Holder: Hold(&value)}
	if n := testing.AllocsPerRun(100, func() {
		if Of(c) != &value {
			t.Fatal("another value")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if zero := (change{size: c.size}); Of(zero) != nil || zero.name != "" {
		t.Error("a value")
	}
}

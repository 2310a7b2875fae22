package apiserver

import (
	"iter"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
)

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// clearField sets the field name of a Go type to its zero value, if the type has it.
func clearField(obj Object, name string) {
	if f := reflect.ValueOf(obj).Elem().FieldByName(name); f.IsValid() {
		f.SetZero()
	}
}

// copyField sets the field name of obj to a copy of the field of from.
func copyField(obj, from Object, name string) {
	if f := reflect.ValueOf(obj).Elem().FieldByName(name); f.IsValid() {
		f.Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName(name))
	}
}

// sameContent reports whether two objects of one Go type are equal except for their metadata.
func sameContent(a, b Object) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		if field := x.Type().Field(i); field.Name == "ObjectMeta" || field.Name == "TypeMeta" {
			continue
		}
		if !equality.Semantic.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return false
		}
	}
	return true
}

package usercode

import (
	"reflect"
	"slices"
	"strings"
)

// FillIn sets the named fields of config, a pointer to a struct, that are zero to those of defaults, a struct with
// fields of the same names and types. A field that is a struct is filled in field by field.
func FillIn(config, defaults any, fields ...string) {
	to, from := reflect.ValueOf(config).Elem(), reflect.ValueOf(defaults)
	for _, name := range fields {
		fillIn(to.FieldByName(name), from.FieldByName(name))
	}
}

func fillIn(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Struct:
		for i := range to.NumField() {
			fillIn(to.Field(i), from.Field(i))
		}
	case to.IsZero():
		to.Set(from)
	}
}

// SetFields returns the names of the exported fields of config, a struct, that are not zero, if they are among fields.
// The name of a field in a struct is "Queue.Priority"; "Queue" in fields means all fields of that struct.
func SetFields(config any, fields ...string) []string {
	set := setFields("", reflect.ValueOf(config))
	return slices.DeleteFunc(set, func(name string) bool { return !within(name, fields) })
}

// OtherFields is SetFields for the fields that are not among fields.
func OtherFields(config any, fields ...string) []string {
	set := setFields("", reflect.ValueOf(config))
	return slices.DeleteFunc(set, func(name string) bool { return within(name, fields) })
}

func within(name string, fields []string) bool {
	return slices.ContainsFunc(fields, func(f string) bool { return name == f || strings.HasPrefix(name, f+".") })
}

func setFields(prefix string, config reflect.Value) (names []string) {
	for i := range config.NumField() {
		switch field := config.Type().Field(i); {
		case !field.IsExported() || config.Field(i).IsZero():
		case field.Type.Kind() == reflect.Struct:
			names = append(names, setFields(prefix+field.Name+".", config.Field(i))...)
		default:
			names = append(names, prefix+field.Name)
		}
	}
	return names
}

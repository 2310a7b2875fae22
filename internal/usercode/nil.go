package usercode

import "reflect"

// IsNil reports whether v is nil, or an interface value that contains a nil pointer or a nil function. A program often
// passes a typed nil pointer for something that it has not created.
func IsNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Func, reflect.Pointer:
		return value.IsNil()
	default:
		return false
	}
}

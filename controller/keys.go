package controller

import (
	"context"
	"encoding"
	"encoding/hex"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/kube"
)

// KeyHandler returns a Reconciler that calls handler with the keys of a type of the program: a tenant, an ID, a cluster
// with an object in it. Sources enqueue such a key as EncodeKey(key). A nil handler returns nil, which New reports.
//
// A key consists of strings, integers and booleans, and of arrays and structs of them with exported fields. Types with
// the methods MarshalText and, on the pointer, UnmarshalText are allowed too. KeyHandler panics for other types.
//
// A key that is not the result of EncodeKey for K is a terminal error of its run.
func KeyHandler[K comparable](handler Handler[K]) Reconciler {
	if err := checkKeyType(reflect.TypeFor[K]()); err != nil {
		panic(fmt.Sprintf("controller.KeyHandler: %v", err))
	}
	if handler == nil {
		return nil
	}
	return func(ctx context.Context, encoded kube.Key) error {
		key, err := keyOf[K](encoded)
		if err != nil {
			return Terminal(err)
		}
		return handler(ctx, key)
	}
}

// EncodeKey returns the kube.Key that stands for key in the queue, causes, records, logs and metrics. Different keys
// have different results, and KeyHandler reverses it: nothing is stored. The result of its method String is the text of
// key: a string as it is, a struct as its fields with slashes between them ("Deployment/shop/web"). Slashes inside of
// fields, percent signs, double quotes and characters that cannot be printed are encoded as in URLs. An empty text is
// "".
//
// The part before the first slash is the Namespace of the result, so it is also the default of QueueConfig.Group. A
// kube.Key is returned unchanged.
//
// EncodeKey panics for the types for which KeyHandler panics, and for a key whose method MarshalText returns an error
// or a text that UnmarshalText does not turn into the same key.
func EncodeKey[K comparable](key K) kube.Key {
	if k, ok := any(key).(kube.Key); ok {
		return k
	}
	encoded, usesMethods, err := encodeKey(reflect.ValueOf(&key).Elem())
	if err == nil && usesMethods {
		err = readsBack(encoded, key)
	}
	if err != nil {
		panic(fmt.Sprintf("controller.EncodeKey: %v", err))
	}
	return encoded
}

// keyOf returns the key for which EncodeKey has returned encoded. It returns an error if there is no such key.
func keyOf[K comparable](encoded kube.Key) (key K, err error) {
	if k, ok := any(&key).(*kube.Key); ok {
		*k = encoded
		return key, nil
	}
	err = decodeKey(encoded.String(), reflect.ValueOf(&key).Elem())
	if err == nil {
		reencoded, _, errAgain := encodeKey(reflect.ValueOf(&key).Elem())
		if err = errAgain; err == nil && reencoded != encoded {
			err = fmt.Errorf("that key is %q", reencoded)
		}
	}
	if err != nil {
		var none K
		return none, fmt.Errorf("%q is not a key of type %s, as controller.EncodeKey returns it: %w", encoded,
			reflect.TypeFor[K](), err)
	}
	return key, nil
}

// readsBack returns an error unless encoded is decoded as key.
func readsBack[K comparable](encoded kube.Key, key K) error {
	var decoded K
	if err := decodeKey(encoded.String(), reflect.ValueOf(&decoded).Elem()); err != nil {
		return fmt.Errorf("the text %q of a key of type %T cannot be read: %w", encoded, key, err)
	}
	if decoded != key {
		return fmt.Errorf("the text %q of a key of type %T is that of another key: UnmarshalText must return the key "+
			"of MarshalText", encoded, key)
	}
	return nil
}

// emptyText is the encoded empty text: the zero kube.Key means "no key". No other text contains quotes.
const emptyText = `""`

// encodeKey returns the encoded key in v. usesMethods is true if MarshalText of the program was called.
func encodeKey(v reflect.Value) (encoded kube.Key, usesMethods bool, err error) {
	if err := checkKeyType(v.Type()); err != nil {
		return kube.Key{}, false, err
	}
	var parts []string
	for field := range leaves(v) {
		text, method, err := textOf(field)
		if err != nil {
			return kube.Key{}, true, err
		}
		usesMethods = usesMethods || method
		parts = append(parts, escaped(text, isLeaf(v.Type())))
	}
	text := strings.Join(parts, "/")
	if text == "" {
		text = emptyText
	}
	return splitKey(text), usesMethods, nil
}

// splitKey returns the key whose String method returns text, with a namespace if that is possible.
func splitKey(text string) kube.Key {
	if namespace, name, found := strings.Cut(text, "/"); found && namespace != "" {
		return kube.Key{Namespace: namespace, Name: name}
	}
	return kube.Key{Name: text}
}

// decodeKey sets v to the key with this text.
func decodeKey(text string, v reflect.Value) error {
	if err := checkKeyType(v.Type()); err != nil {
		return err
	}
	if text == emptyText {
		text = ""
	}
	parts := []string{text}
	if !isLeaf(v.Type()) {
		parts = strings.Split(text, "/")
	}
	n := 0
	for field := range leaves(v) {
		if n++; n > len(parts) {
			continue
		}
		part, err := url.PathUnescape(parts[n-1])
		if err == nil {
			err = setText(field, part)
		}
		if err != nil {
			return err
		}
	}
	if n != len(parts) && text != "" {
		return fmt.Errorf("it has %s instead of %d", counted(len(parts), "part"), n)
	}
	return nil
}

// checkKeyType returns an error if t is not a type of keys.
func checkKeyType(t reflect.Type) error {
	if isLeaf(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Array:
		return checkKeyType(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if field.Name == "_" {
				continue
			}
			if !field.IsExported() {
				return fmt.Errorf("field %s of key type %s is not exported: export it, or give the type the methods "+
					"MarshalText and UnmarshalText", field.Name, t)
			}
			if err := checkKeyType(field.Type); err != nil {
				return fmt.Errorf("field %s of key type %s: %w", field.Name, t, err)
			}
		}
		return nil
	}
	return fmt.Errorf("a key cannot contain a %s: it consists of strings, integers and booleans, and arrays and "+
		"structs of them", t)
}

// isLeaf reports whether a value of type t is one part of a key's text.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return true
	}
	return hasText(t) || isBytes(t)
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Array && t.Elem().Kind() == reflect.Uint8
}

// hasText reports whether the program determines the text of values of type t.
func hasText(t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface &&
		t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// leaves iterates over the parts of a key in order. Each type has a fixed number of them.
func leaves(v reflect.Value) func(yield func(reflect.Value) bool) {
	return func(yield func(reflect.Value) bool) { walkLeaves(v, yield) }
}

func walkLeaves(v reflect.Value, yield func(reflect.Value) bool) bool {
	if isLeaf(v.Type()) {
		return yield(v)
	}
	n := 0
	part := v.Index
	if v.Kind() == reflect.Array {
		n = v.Len()
	} else {
		n, part = v.NumField(), v.Field
	}
	for i := range n {
		if v.Kind() == reflect.Struct && v.Type().Field(i).Name == "_" {
			continue // it is not compared
		}
		if !walkLeaves(part(i), yield) {
			return false
		}
	}
	return true
}

// textOf returns the text of one part. method is true if it comes from MarshalText.
func textOf(v reflect.Value) (text string, method bool, err error) {
	if hasText(v.Type()) {
		marshaler, _ := reflect.TypeAssert[encoding.TextMarshaler](v)
		b, err := marshaler.MarshalText()
		if err != nil {
			return "", true, fmt.Errorf("MarshalText of a key of type %s: %w", v.Type(), err)
		}
		return string(b), true, nil
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String(), false, nil
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool()), false, nil
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), false, nil
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10), false, nil
	}
	return hex.EncodeToString(v.Bytes()), false, nil
}

// setText sets one part to the value with this text. keyOf detects texts that textOf does not return.
func setText(v reflect.Value, text string) error {
	if hasText(v.Type()) {
		unmarshaler, _ := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
		return unmarshaler.UnmarshalText([]byte(text))
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
		return nil
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
		return err
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
		return err
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != v.Len() {
		return fmt.Errorf("%q is not the text of %d bytes", text, v.Len())
	}
	reflect.Copy(v, reflect.ValueOf(b))
	return nil
}

// escaped returns text with the bytes of some characters as %XX, as url.PathUnescape reads them. A slash stays only if
// whole is true: if the text is not followed by further parts.
func escaped(text string, whole bool) string {
	plain := func(r rune, size int) bool {
		return r != '%' && r != '"' && (whole || r != '/') && unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
	}
	var s strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if plain(r, size) {
			s.WriteString(text[i : i+size])
		} else {
			for _, b := range []byte(text[i : i+size]) {
				fmt.Fprintf(&s, "%%%02X", b)
			}
		}
		i += size
	}
	return s.String()
}

package difference

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Content returns the fields of an object as they are decoded from its JSON, in new maps: whole numbers are int64.
func Content(obj any) (map[string]any, error) {
	encoded, err := encodeFields(obj)
	if err != nil {
		return nil, err
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(encoded, &content); err != nil {
		return nil, fmt.Errorf("read the fields of the object: %w", err)
	}
	return content, nil
}

// ContentExcept is like Content, without the fields for which leftOut returns true: for a field of the object with
// inner "", and for the fields of its metadata and its spec. Decoding is most of the time of Content. A field that is
// left out may be one that cannot be decoded.
func ContentExcept(obj any, leftOut func(field, inner string) bool) (map[string]any, error) {
	encoded, err := encodeFields(obj)
	if err != nil {
		return nil, err
	}
	if string(encoded) == "null" {
		return nil, nil
	}
	content, err := members(encoded, "", leftOut)
	if err != nil {
		return nil, fmt.Errorf("read the fields of the object: %w", err)
	}
	return content, nil
}

// members decodes a JSON object: a whole object, or a field of one.
func members(encoded []byte, field string, leftOut func(field, inner string) bool) (map[string]any, error) {
	fields := map[string]any{}
	var failed error
	err := wire.Fields(encoded, func(name string, value []byte) {
		var decoded any
		var err error
		switch isInner := field != ""; {
		case isInner && leftOut(field, name), !isInner && leftOut(name, ""):
			return
		case !isInner && (name == "metadata" || name == "spec") && leavesOut(value, name, leftOut):
			decoded, err = members(value, name, leftOut)
		default:
			err = utiljson.Unmarshal(value, &decoded)
		}
		failed = cmp.Or(failed, err)
		fields[name] = decoded
	})
	return fields, cmp.Or(failed, err)
}

// leavesOut reports whether fields of a field are left out: otherwise it is faster to decode it whole.
func leavesOut(encoded []byte, field string, leftOut func(field, inner string) bool) (some bool) {
	err := wire.Fields(encoded, func(name string, _ []byte) { some = some || leftOut(field, name) })
	return some && err == nil
}

// encodeFields returns the JSON of an object.
func encodeFields(obj any) ([]byte, error) {
	// JSON is the form of the requests. DeepCopy of unstructured objects panics for ints, which hand-written content
	// contains, and the converter of apimachinery includes unexported fields and panics for some.
	if u, ok := obj.(runtime.Unstructured); ok {
		obj = u.UnstructuredContent() // its own encoder requires a kind
	}
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	return encoded, nil
}

// States returns the fields of two states of one object, of one Go type. It omits the kind: typed objects that were
// read have one, and typed objects that the program created do not.
func States(before, after kube.Object) (from, to map[string]any, err error) {
	switch {
	case usercode.IsNil(before) || usercode.IsNil(after):
		err = errors.New("an object is nil")
	case reflect.TypeOf(before) != reflect.TypeOf(after):
		err = fmt.Errorf("one object is a %T and the other one a %T", before, after)
	case kube.KeyOf(before) != kube.KeyOf(after):
		err = fmt.Errorf("one object is %s and the other one %s", kube.KeyOf(before), kube.KeyOf(after))
	default:
		if from, err = Content(before); err == nil {
			to, err = Content(after)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("compare the objects: %w", err)
	}
	return Without(from, []string{"apiVersion", "kind"}), Without(to, []string{"apiVersion", "kind"}), nil
}

// Without returns a copy of the fields of an object without some of them, and without some of its metadata. Metadata
// without any field is left out.
func Without(content map[string]any, fields []string, metadata ...string) map[string]any {
	rest := maps.Clone(content)
	for _, name := range fields {
		delete(rest, name)
	}
	if given, ok := rest["metadata"].(map[string]any); ok && len(metadata) > 0 {
		delete(rest, "metadata")
		if given = Without(given, metadata); len(given) > 0 {
			rest["metadata"] = given
		}
	}
	return rest
}

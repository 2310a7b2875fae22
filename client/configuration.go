package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// configurationOf returns the fields of obj that are to be applied: those that the caller has
// set, which are the ones that it comes to own.
//
// Left out are the metadata that is the API server's, the status (of the subresource "status"
// everything else), and what Go's types encode of structs that nobody has touched. uid stays:
// it makes the API server refuse to change another object of that name.
func configurationOf(t target, obj kube.Object, s settings) (map[string]any, error) {
	content, err := contentOf(obj)
	if err != nil {
		return nil, err
	}
	metadata, _ := content["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	for name, value := range metadata {
		if value == nil || slices.Contains(metadataOfServer(), name) {
			delete(metadata, name)
		}
	}
	metadata["name"] = t.key.Name
	delete(metadata, "namespace")
	if t.key.Namespace != "" {
		metadata["namespace"] = t.key.Namespace
	}
	if s.unchanged {
		metadata["resourceVersion"] = obj.GetResourceVersion()
	}
	if s.subresource == "status" {
		for name := range metadata {
			if !slices.Contains([]string{"name", "namespace", "uid", "resourceVersion"}, name) {
				delete(metadata, name)
			}
		}
		content = map[string]any{"status": content["status"]}
		if content["status"] == nil {
			delete(content, "status")
		}
	} else {
		delete(content, "status")
	}
	content["metadata"] = metadata
	content["apiVersion"], content["kind"] = t.kind.GroupVersion().String(), t.kind.Kind
	if isCoreSecret(t.kind) {
		err = encodeStringData(content)
	}
	return content, err
}

// metadataOfServer are the fields of metadata that the API server sets, or that mean nothing to
// an object with a name.
func metadataOfServer() []string {
	return []string{
		"managedFields", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "selfLink", "generateName",
	}
}

func isCoreSecret(kind schema.GroupVersionKind) bool {
	return kind.GroupKind() == schema.GroupKind{Kind: kindSecret}
}

// encodeStringData moves a Secret's stringData to data, as the API server would do: it does not
// keep stringData, so that nothing would tell whether it is still what was applied, nor be
// removed when it is applied no longer.
func encodeStringData(content map[string]any) error {
	text, given := content["stringData"]
	if !given {
		return nil
	}
	delete(content, "stringData")
	values, ok := text.(map[string]any)
	if text != nil && !ok {
		return fmt.Errorf("stringData is a %T: it maps names to strings", text)
	}
	if len(values) == 0 {
		return nil
	}
	data, _ := content["data"].(map[string]any)
	if data == nil {
		data = map[string]any{}
	}
	for name, value := range values {
		plain, ok := value.(string)
		if !ok {
			return fmt.Errorf("stringData[%s] is a %T: it has to be a string", name, value)
		}
		data[name] = base64.StdEncoding.EncodeToString([]byte(plain))
	}
	content["data"] = data
	return nil
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
func dropUnset(value reflect.Value, content any) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			dropUnset(value.Elem(), content)
		}
	case reflect.Struct:
		if fields, ok := content.(map[string]any); ok && !encodesItself(value.Type()) {
			dropUnsetFields(value, fields)
		}
	case reflect.Slice, reflect.Array:
		if elements, ok := content.([]any); ok && len(elements) == value.Len() {
			for i, element := range elements {
				dropUnset(value.Index(i), element)
			}
		}
	case reflect.Map:
		elements, ok := content.(map[string]any)
		if !ok || value.Type().Key().Kind() != reflect.String {
			return
		}
		for entries := value.MapRange(); entries.Next(); {
			dropUnset(entries.Value(), elements[entries.Key().String()])
		}
	}
}

// dropUnsetFields is dropUnset for the fields of a struct.
func dropUnsetFields(value reflect.Value, content map[string]any) {
	for i := range value.NumField() {
		field := value.Type().Field(i)
		name, inline, optional := jsonNameOf(field)
		if inline {
			dropUnset(value.Field(i), content)
			continue
		}
		child, ok := content[name]
		switch {
		case !ok:
			continue
		case child == nil:
			delete(content, name)
			continue
		}
		dropUnset(value.Field(i), child)
		if field.Type.Kind() != reflect.Struct || !optional {
			continue
		}
		if rest, isMap := child.(map[string]any); isMap && len(rest) == 0 || value.Field(i).IsZero() {
			delete(content, name)
		}
	}
}

// jsonNameOf returns the name under which a field is encoded, whether its own fields are encoded
// in its place, and whether it may be left out.
func jsonNameOf(field reflect.StructField) (name string, inline, optional bool) {
	name, flags, _ := strings.Cut(field.Tag.Get("json"), ",")
	options := strings.Split(flags, ",")
	optional = slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
	inline = name == "" && (field.Anonymous || slices.Contains(options, "inline"))
	if name == "" {
		name = field.Name
	}
	return name, inline, optional
}

// encodesItself reports whether a type has its own way to JSON: times, quantities, numbers or
// strings.
func encodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
		pointer.Implements(reflect.TypeFor[interface{ ToUnstructured() any }]())
}

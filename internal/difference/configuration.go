package difference

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/kube"
)

// ServerMetadata returns the fields of metadata that the API server sets, or that do not apply to an object with
// a name.
func ServerMetadata() []string {
	return []string{
		"managedFields", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "selfLink", "generateName",
	}
}

// EncodeStringData moves a Secret's stringData to data, as the API server does. The API server does not store
// stringData, so without this neither drift nor removed keys could be detected.
func EncodeStringData(content map[string]any) error {
	text, given := content["stringData"]
	if !given {
		return nil
	}
	delete(content, "stringData")
	values, ok := text.(map[string]any)
	if text != nil && !ok {
		return fmt.Errorf("stringData is a %T, must be a map of strings", text)
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
			return fmt.Errorf("stringData[%s] is a %T, must be a string", name, value)
		}
		data[name] = base64.StdEncoding.EncodeToString([]byte(plain))
	}
	content["data"] = data
	return nil
}

// Project returns the values of value in the fields of configuration. Lists are not projected, because only
// the API server can match their elements.
func Project(configuration, value any) any {
	wanted, isMap := configuration.(map[string]any)
	fields, areMaps := value.(map[string]any)
	if !isMap || !areMaps {
		return value
	}
	projected := map[string]any{}
	for name, inner := range wanted {
		if field, ok := fields[name]; ok {
			projected[name] = Project(inner, field)
		}
	}
	return projected
}

// Copy returns a copy of obj. DeepCopy of unstructured objects panics for ints, which hand-written objects contain.
func Copy[T kube.Object](obj T) (T, error) {
	u, ok := any(obj).(*unstructured.Unstructured)
	if !ok {
		return obj.DeepCopyObject().(T), nil
	}
	content, err := Content(u)
	return any(&unstructured.Unstructured{Object: content}).(T), err
}

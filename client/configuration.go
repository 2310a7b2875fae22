package client

import (
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// configurationOf returns the fields to apply: those that are set in obj. The field owner will own them.
//
// It omits metadata that the API server sets, the status (or everything else for the subresource "status"), and
// unset structs of Go types. It keeps the uid, so that the API server rejects a change of another object with the
// same name.
func configurationOf(t target, obj kube.Object) (map[string]any, error) {
	content, err := t.client.shapes.contentOf(obj)
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
	switch {
	case t.unchanged:
		metadata["resourceVersion"] = obj.GetResourceVersion()
	case t.absent:
		metadata["resourceVersion"] = versionOfNoObject
	}
	if t.subresource == "status" {
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

// metadataOfServer are the fields of metadata that the API server sets, or that do not apply to an object with
// a name.
func metadataOfServer() []string {
	return []string{
		"managedFields", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "selfLink", "generateName",
	}
}

func isCoreSecret(kind schema.GroupVersionKind) bool {
	return kind.GroupKind() == schema.GroupKind{Kind: kindSecret}
}

// encodeStringData moves a Secret's stringData to data, as the API server does. The API server does not store
// stringData, so without this neither drift nor removed keys could be detected.
func encodeStringData(content map[string]any) error {
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

package client

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// configurationOf returns the fields to apply: those that are set in obj. The field owner will own them.
//
// It omits metadata that the API server sets, the status (or everything else for the subresource "status"), and
// unset structs of Go types. It keeps the uid, so that the API server rejects a change of another object with the
// same name.
func configurationOf(t target, obj kube.Object) (map[string]any, error) {
	content, err := t.client.shapes.Content(obj)
	if err != nil {
		return nil, err
	}
	metadata, _ := content["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	for name, value := range metadata {
		if value == nil || slices.Contains(difference.ServerMetadata(), name) {
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
		err = difference.EncodeStringData(content)
	}
	return content, err
}

func isCoreSecret(kind schema.GroupVersionKind) bool {
	return kind.GroupKind() == schema.GroupKind{Kind: kindSecret}
}

package crd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// desiredOver returns the definition as it is to be in place of live, which may be nil: desired,
// and what is left to others.
func desiredOver(desired, live *apiextensionsv1.CustomResourceDefinition, owner string) *apiextensionsv1.CustomResourceDefinition {
	want := desired.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(want)
	want.Status = desired.Status // which is the API server's
	if live == nil {
		return want
	}
	switch {
	case desired.Spec.Conversion == nil && !owns(live, owner, "spec", "conversion"):
		want.Spec.Conversion = live.Spec.Conversion.DeepCopy()
	case clientConfig(want) != nil && clientConfig(want).CABundle == nil && clientConfig(live) != nil:
		// Certificate managers fill it in.
		clientConfig(want).CABundle = slices.Clone(clientConfig(live).CABundle)
	}
	return want
}

func clientConfig(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	if d.Spec.Conversion == nil || d.Spec.Conversion.Webhook == nil {
		return nil
	}
	return d.Spec.Conversion.Webhook.ClientConfig
}

// isAsWanted reports whether writing want would change nothing. When it cannot tell it says no,
// which costs a request.
func isAsWanted(live, want *apiextensionsv1.CustomResourceDefinition, owner string) bool {
	return sameContent(live.Spec, want.Spec) &&
		sameEntries(live, want.Labels, live.Labels, owner, "labels") &&
		sameEntries(live, want.Annotations, live.Annotations, owner, "annotations") &&
		sameEntries(live, entriesOf(want.Finalizers), entriesOf(live.Finalizers), owner, "finalizers") &&
		len(want.OwnerReferences) == 0
}

// sameContent compares what the API has of two values: the raw parts of schemas may be written
// differently.
func sameContent(a, b any) bool {
	decoded := make([]any, 2)
	for i, value := range []any{a, b} {
		encoded, err := json.Marshal(value)
		if err != nil || json.Unmarshal(encoded, &decoded[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(decoded[0], decoded[1])
}

// sameEntries reports whether live has the entries that are wanted, and none that the owner has
// put there and does not want any longer.
func sameEntries(live *apiextensionsv1.CustomResourceDefinition, want, has map[string]string, owner, field string) bool {
	for name, value := range want {
		if got, ok := has[name]; !ok || got != value {
			return false
		}
	}
	for name := range has {
		if _, wanted := want[name]; !wanted && owns(live, owner, "metadata", field, name) {
			return false
		}
	}
	return true
}

func entriesOf(values []string) map[string]string {
	entries := map[string]string{}
	for _, value := range values {
		entries[value] = ""
	}
	return entries
}

// owns reports whether the owner has applied a field of the definition.
func owns(live *apiextensionsv1.CustomResourceDefinition, owner string, path ...string) bool {
	for _, entry := range live.ManagedFields {
		if entry.Manager != owner || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for i, step := range path {
			below, ok := fields["f:"+step].(map[string]any)
			if !ok {
				// Finalizers are a set of values.
				if below, ok = fields[fmt.Sprintf("v:%q", step)].(map[string]any); !ok {
					break
				}
			}
			if fields = below; i == len(path)-1 {
				return true
			}
		}
	}
	return false
}

// configurationOf returns what is to be applied: what desired says, and nothing of what is left
// to others, for that would take it from them. With the uid and the resourceVersion of live, which
// may be nil, it is for that state only. Of a definition that was missing a moment ago this need
// not be: nothing can be stored by it yet.
func configurationOf(desired, live *apiextensionsv1.CustomResourceDefinition) (*unstructured.Unstructured, error) {
	applied := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: kindName},
		ObjectMeta: metav1.ObjectMeta{
			Name: desired.Name, Labels: desired.Labels, Annotations: desired.Annotations,
			Finalizers: desired.Finalizers, OwnerReferences: desired.OwnerReferences,
		},
		Spec: desired.Spec,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(applied)
	if err != nil {
		return nil, fmt.Errorf("read the fields of the definition: %w", err)
	}
	delete(content, "status")
	configuration := &unstructured.Unstructured{Object: content}
	if live != nil {
		configuration.SetUID(live.UID)
		configuration.SetResourceVersion(live.ResourceVersion)
		if live.Spec.PreserveUnknownFields && !desired.Spec.PreserveUnknownFields {
			// False is left out otherwise, which would leave true as it is.
			if err := unstructured.SetNestedField(content, false, "spec", "preserveUnknownFields"); err != nil {
				return nil, err
			}
		}
	}
	return configuration, nil
}

// definitionOf returns the definition that was read into obj.
func definitionOf(obj *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	encoded, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	return definition, json.Unmarshal(encoded, definition)
}

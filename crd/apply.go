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

// mergeWithLive returns the definition that the API server would have after desired is applied to live:
// desired with its defaults, and those fields of live that Ensure leaves to other field owners.
// live may be nil.
//
// Invariant: what Compare checks is this result. Each field that applyConfiguration leaves out must be
// taken from live here.
func mergeWithLive(
	desired, live *apiextensionsv1.CustomResourceDefinition, owner string,
) *apiextensionsv1.CustomResourceDefinition {
	want := desired.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(want)
	want.Status = desired.Status // the API server owns the status: the defaults of this function do not apply
	if live == nil {
		return want
	}
	switch {
	case desired.Spec.Conversion == nil && !ownsField(live, owner, "spec", "conversion"):
		want.Spec.Conversion = live.Spec.Conversion.DeepCopy()
	case clientConfig(want) != nil && clientConfig(want).CABundle == nil && clientConfig(live) != nil:
		// A certificate manager sets the CA bundle.
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

// isUpToDate reports whether writing want would change nothing. It returns false when the two cannot be
// compared, which costs a request and is safe. It must never return true for a definition that differs.
func isUpToDate(live, want *apiextensionsv1.CustomResourceDefinition, owner string) bool {
	return sameContent(live.Spec, want.Spec) &&
		sameEntries(live, want.Labels, live.Labels, owner, "labels") &&
		sameEntries(live, want.Annotations, live.Annotations, owner, "annotations") &&
		sameEntries(live, toSet(want.Finalizers), toSet(live.Finalizers), owner, "finalizers") &&
		len(want.OwnerReferences) == 0
}

// sameContent reports whether two values are equal as JSON. The raw parts of schemas may differ in
// spelling (spaces, escapes, the order of keys).
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

// sameEntries reports whether has contains every entry of want, and no other entry that owner applied
// earlier. Entries of other field owners are ignored.
func sameEntries(
	live *apiextensionsv1.CustomResourceDefinition, want, current map[string]string, owner, field string,
) bool {
	for name, value := range want {
		if got, ok := current[name]; !ok || got != value {
			return false
		}
	}
	for name := range current {
		if _, wanted := want[name]; !wanted && ownsField(live, owner, "metadata", field, name) {
			return false
		}
	}
	return true
}

func toSet(values []string) map[string]string {
	entries := map[string]string{}
	for _, value := range values {
		entries[value] = ""
	}
	return entries
}

// ownsField reports whether owner has applied the field at path. It reads the managed fields of
// server-side apply; fields that owner wrote by an update do not count.
func ownsField(live *apiextensionsv1.CustomResourceDefinition, owner string, path ...string) bool {
	for _, entry := range live.ManagedFields {
		if entry.Manager != owner || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" ||
			entry.FieldsV1 == nil {
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

// applyConfiguration returns the body of the apply request: the fields of desired, without the fields
// that Ensure leaves to other owners, because an apply would take these over.
//
// It has the uid and the resourceVersion of live, so that the API server refuses it for any other state.
// When live is nil it has neither: option IfAbsent stands for them.
func applyConfiguration(desired, live *apiextensionsv1.CustomResourceDefinition) (*unstructured.Unstructured, error) {
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
			// Required because the field has omitempty: a missing field would keep the live value, true.
			if err := unstructured.SetNestedField(content, false, "spec", "preserveUnknownFields"); err != nil {
				return nil, err
			}
		}
	}
	return configuration, nil
}

// fromUnstructured decodes the response of an apply request.
func fromUnstructured(obj *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	encoded, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	return definition, json.Unmarshal(encoded, definition)
}

// Package crdtest makes definitions of custom resources for tests.
package crdtest

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Version is a version of a kind for Define. Without a schema it keeps every field.
type Version struct {
	Name                       string
	Schema                     *apiextensionsv1.JSONSchemaProps
	NotServed, Storage, Status bool
	Deprecated                 bool
	Scale                      bool
	SelectableFields           []string
}

// Define returns the definition of a namespaced kind with a regular plural. A single version is stored.
func Define(group, kind string, versions ...Version) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	d := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition",
		},
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s",
			},
		},
	}
	for _, v := range versions {
		v.Storage = v.Storage || len(versions) == 1
		d.Spec.Versions = append(d.Spec.Versions, v.build())
	}
	return d
}

func (v Version) build() apiextensionsv1.CustomResourceDefinitionVersion {
	schema := v.Schema.DeepCopy()
	if schema == nil {
		schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	}
	built := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: v.Name, Served: !v.NotServed, Storage: v.Storage, Deprecated: v.Deprecated,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
	}
	if v.Status || v.Scale {
		built.Subresources = &apiextensionsv1.CustomResourceSubresources{}
	}
	if v.Status {
		built.Subresources.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	if v.Scale {
		built.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
		}
	}
	for _, path := range v.SelectableFields {
		built.SelectableFields = append(built.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
	}
	return built
}

package crd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// Definition describes a CustomResourceDefinition for New. New copies it: the result shares no memory with
// the caller's value.
type Definition struct {
	// Group is the API group, a domain name: "shop.example.com". Required.
	Group string
	// Kind is the kind's name, singular and in CamelCase: "Website". Required.
	Kind string
	// Plural is the kind's name in paths and on the command line. It is part of the definition's own
	// name and immutable. Default: Kind in lower case with a regular English plural, "websites"; kinds
	// with an irregular plural ("Mouse") must set it.
	Plural string
	// Singular is kubectl's name for one object. Default: Kind in lower case.
	Singular string
	// ListKind is the kind of lists. Default: Kind with the suffix "List".
	ListKind string
	// ShortNames are abbreviations for kubectl, such as "po" for Pods. Default: none.
	ShortNames []string
	// Categories are names of groups of kinds for kubectl get, such as "all". Default: none.
	Categories []string
	// Scope selects namespaced or cluster-scoped objects. It is immutable. Default
	// apiextensionsv1.NamespaceScoped.
	Scope apiextensionsv1.ResourceScope
	// Versions are the kind's versions. At least one is required.
	Versions []Version
	// Conversion is how the API server converts objects between versions. Default: the value that
	// another field owner has set, otherwise None, which changes the apiVersion only.
	Conversion *apiextensionsv1.CustomResourceConversion
	// Labels and Annotations are those of the definition itself. Default: none.
	Labels, Annotations map[string]string
}

// Version describes one version of a kind.
type Version struct {
	// Name is the version's name: "v1", "v1beta2". Required.
	Name string
	// Schema is the OpenAPI schema of objects. Default: a schema that keeps every field and validates
	// nothing.
	Schema *apiextensionsv1.JSONSchemaProps
	// NotServed excludes the version from the API. Objects that are stored in it stay readable in the
	// served versions. Default false.
	NotServed bool
	// Storage makes this the version in which objects are stored. Exactly one version must have it.
	// Default: true if there is one version, otherwise false.
	Storage bool
	// Status enables the status subresource: a write of the object does not change its status, and a
	// write of the status changes nothing else. Kinds that have a status should set it. Default false.
	Status bool
	// Scale enables the scale subresource, for kubectl scale and autoscalers. Its paths default to
	// .spec.replicas and .status.replicas. Default: disabled.
	Scale *apiextensionsv1.CustomResourceSubresourceScale
	// PrinterColumns are the columns of kubectl get after the name. Their Type defaults to string.
	// Default: the age, which the caller must add when it sets other columns.
	PrinterColumns []apiextensionsv1.CustomResourceColumnDefinition
	// SelectableFields are the JSON paths that field selectors support: ".spec.host". Default: none.
	SelectableFields []string
	// Deprecated makes the API server send a warning with each response for this version.
	// DeprecationWarning is its text, at most 256 bytes. Default: false, and the API server's text.
	Deprecated         bool
	DeprecationWarning string
}

// New returns the CustomResourceDefinition that definition describes. It makes no request; Ensure installs
// the result. The error lists every mistake.
func New(definition Definition) (*apiextensionsv1.CustomResourceDefinition, error) {
	d := definition
	d.Plural = cmp.Or(d.Plural, pluralOf(d.Kind))
	d.Singular = cmp.Or(d.Singular, strings.ToLower(d.Kind))
	d.Scope = cmp.Or(d.Scope, apiextensionsv1.NamespaceScoped)
	built := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: kindName},
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Plural + "." + d.Group, Labels: maps.Clone(d.Labels), Annotations: maps.Clone(d.Annotations),
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: d.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: d.Kind, Plural: d.Plural, Singular: d.Singular, ListKind: cmp.Or(d.ListKind, d.Kind+"List"),
				ShortNames: slices.Clone(d.ShortNames), Categories: slices.Clone(d.Categories),
			},
			Scope:      d.Scope,
			Conversion: d.Conversion.DeepCopy(),
		},
	}
	var mistakes usercode.Mistakes
	d.check(&mistakes)
	for _, version := range d.Versions {
		version.Storage = version.Storage || len(d.Versions) == 1
		version.check(&mistakes)
		built.Spec.Versions = append(built.Spec.Versions, version.build())
	}
	if mistakes.Err() == nil { // otherwise checkDefinition would repeat some of them
		mistakes.Join(checkDefinition(built))
	}
	if err := mistakes.Err(); err != nil {
		return nil, fmt.Errorf("define %s: %w", cmp.Or(d.Kind, "a kind"), err)
	}
	return built, nil
}

// check adds what the API server would reject, in terms of Definition's fields.
func (d Definition) check(mistakes *usercode.Mistakes) {
	label := func(field, value string) {
		if problems := validation.IsDNS1035Label(value); problems != nil {
			mistakes.Addf("%s %q is not valid in a path: %s", field, value, strings.Join(problems, ", "))
		}
	}
	switch {
	case d.Group == "":
		mistakes.Addf("Group is required")
	case validation.IsDNS1123Subdomain(d.Group) != nil || !strings.Contains(d.Group, "."):
		mistakes.Addf("Group %q is not a domain name with a dot, such as shop.example.com", d.Group)
	}
	if d.Kind == "" {
		mistakes.Addf("Kind is required")
	} else {
		label("Kind", strings.ToLower(d.Kind))
		label("Plural", d.Plural)
		label("Singular", d.Singular)
		if d.ListKind == d.Kind {
			mistakes.Addf("ListKind is equal to Kind, %q", d.Kind)
		}
	}
	for _, name := range d.ShortNames {
		label("ShortNames:", name)
	}
	for _, name := range d.Categories {
		label("Categories:", name)
	}
	if len(d.Versions) == 0 {
		mistakes.Addf("Versions: at least one is required")
	}
}

func (v Version) check(mistakes *usercode.Mistakes) {
	if problems := validation.IsDNS1035Label(v.Name); problems != nil {
		mistakes.Addf("Versions: Name %q: %s", v.Name, strings.Join(problems, ", "))
	}
	if v.DeprecationWarning != "" && !v.Deprecated {
		mistakes.Addf("Versions: %s has a DeprecationWarning but is not Deprecated", v.Name)
	}
	for _, column := range v.PrinterColumns {
		if column.Name == "" || column.JSONPath == "" {
			mistakes.Addf("Versions: %s: PrinterColumns: %q with path %q: name and path are required", v.Name,
				column.Name, column.JSONPath)
		}
	}
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
	if v.DeprecationWarning != "" {
		built.DeprecationWarning = &v.DeprecationWarning
	}
	if v.Status || v.Scale != nil {
		built.Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: v.Scale.DeepCopy()}
		if v.Status {
			built.Subresources.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
		}
		if scale := built.Subresources.Scale; scale != nil {
			scale.SpecReplicasPath = cmp.Or(scale.SpecReplicasPath, ".spec.replicas")
			scale.StatusReplicasPath = cmp.Or(scale.StatusReplicasPath, ".status.replicas")
		}
	}
	for _, column := range v.PrinterColumns {
		column.Type = cmp.Or(column.Type, "string")
		built.AdditionalPrinterColumns = append(built.AdditionalPrinterColumns, column)
	}
	for _, path := range v.SelectableFields {
		built.SelectableFields = append(built.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
	}
	return built
}

// pluralOf returns the regular English plural of a kind's name, in lower case.
func pluralOf(kind string) string {
	name := strings.ToLower(kind)
	stem, endsInY := strings.CutSuffix(name, "y")
	for _, ending := range []string{"s", "x", "z", "ch", "sh"} {
		if strings.HasSuffix(name, ending) {
			return name + "es"
		}
	}
	switch {
	case name == "":
		return ""
	case endsInY && stem != "" && !strings.ContainsRune("aeiou", rune(stem[len(stem)-1])):
		return stem + "ies"
	}
	return name + "s"
}

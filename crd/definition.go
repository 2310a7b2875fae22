package crd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Definition is what New makes a CustomResourceDefinition of. It is taken by value: New neither
// keeps nor changes the caller's.
type Definition struct {
	// Group is the API group, a domain name: "shop.example.com". Required.
	Group string
	// Kind is the kind's name, in singular and CamelCase: "Website". Required.
	Kind string
	// Plural is the kind's name in paths and on the command line. Default: an English plural
	// of Kind in lower case, "websites"; English has exceptions ("Mouse"): then name it.
	// It is part of the definition's own name, and cannot be changed later.
	Plural string
	// Singular is what kubectl calls one object. Default: Kind in lower case.
	Singular string
	// ListKind is the kind of lists. Default: Kind with "List".
	ListKind string
	// ShortNames are more names for kubectl, as "po" is one of Pods. Default: none.
	ShortNames []string
	// Categories are names of groups of kinds for kubectl get: "all". Default: none.
	Categories []string
	// Scope says whether objects live in namespaces. Default apiextensionsv1.NamespaceScoped. It
	// cannot be changed later.
	Scope apiextensionsv1.ResourceScope
	// Versions are the kind's versions. At least one is required.
	Versions []Version
	// Conversion says how objects come from one version to another. Default: the API server's,
	// which changes nothing but the apiVersion; or what others have set there.
	Conversion *apiextensionsv1.CustomResourceConversion
	// Labels and Annotations are those of the definition itself. Default: none.
	Labels, Annotations map[string]string
}

// Version is a version of a kind.
type Version struct {
	// Name is the version's: "v1", "v1beta2". Required.
	Name string
	// Schema says what objects are like. Default: everything is kept as it comes, and nothing
	// is checked.
	Schema *apiextensionsv1.JSONSchemaProps
	// NotServed has the API server not offer the version: objects that are stored in it can
	// still be read, in another one. Default false.
	NotServed bool
	// Storage makes it the version in which objects are stored. Default: true for the only
	// version; of several, one has to say so.
	Storage bool
	// Status gives the kind a status subresource: writes to the object leave the status alone,
	// and the reverse. Nearly every kind that has a status should. Default false.
	Status bool
	// Scale gives the kind a scale subresource, for kubectl scale and autoscalers. Its paths are
	// .spec.replicas and .status.replicas by default. Default: none.
	Scale *apiextensionsv1.CustomResourceSubresourceScale
	// PrinterColumns are what kubectl get shows, beside the name. Those without a Type are of
	// type string. Default: the age; whoever names columns has to name that too.
	PrinterColumns []apiextensionsv1.CustomResourceColumnDefinition
	// SelectableFields are JSON paths of fields that field selectors may select by:
	// ".spec.host". Default: none.
	SelectableFields []string
	// Deprecated has the API server warn whoever uses the version, with DeprecationWarning, of
	// at most 256 bytes. Default: not deprecated, and a warning of the API server's own.
	Deprecated         bool
	DeprecationWarning string
}

// New makes a definition. It makes no request; Ensure installs what it returns. The error names
// every mistake.
func New(definition Definition) (*apiextensionsv1.CustomResourceDefinition, error) {
	d := definition
	d.Plural = cmp.Or(d.Plural, pluralOf(d.Kind))
	d.Singular = cmp.Or(d.Singular, strings.ToLower(d.Kind))
	d.Scope = cmp.Or(d.Scope, apiextensionsv1.NamespaceScoped)
	made := &apiextensionsv1.CustomResourceDefinition{
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
	errs := d.mistakes()
	for _, version := range d.Versions {
		version.Storage = version.Storage || len(d.Versions) == 1
		errs = append(errs, version.mistakes()...)
		made.Spec.Versions = append(made.Spec.Versions, version.build())
	}
	if len(errs) == 0 { // otherwise check says some of them again
		errs = append(errs, check(made))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("define %s: %w", cmp.Or(d.Kind, "a kind"), err)
	}
	return made, nil
}

// mistakes are what the API server would refuse, in the words of the fields here.
func (d Definition) mistakes() []error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	label := func(field, value string) {
		if problems := validation.IsDNS1035Label(value); problems != nil {
			mistake("%s %q cannot be part of a path: %s", field, value, strings.Join(problems, ", "))
		}
	}
	switch {
	case d.Group == "":
		mistake("Group is required")
	case validation.IsDNS1123Subdomain(d.Group) != nil || !strings.Contains(d.Group, "."):
		mistake("Group %q is no domain name with a dot in it, as in shop.example.com", d.Group)
	}
	if d.Kind == "" {
		mistake("Kind is required")
	} else {
		label("Kind", strings.ToLower(d.Kind))
		label("Plural", d.Plural)
		label("Singular", d.Singular)
		if d.ListKind == d.Kind {
			mistake("ListKind is Kind itself, %q", d.Kind)
		}
	}
	for _, name := range d.ShortNames {
		label("ShortNames:", name)
	}
	for _, name := range d.Categories {
		label("Categories:", name)
	}
	if len(d.Versions) == 0 {
		mistake("Versions: at least one is required")
	}
	return errs
}

func (v Version) mistakes() []error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if problems := validation.IsDNS1035Label(v.Name); problems != nil {
		mistake("Versions: Name %q: %s", v.Name, strings.Join(problems, ", "))
	}
	if v.DeprecationWarning != "" && !v.Deprecated {
		mistake("Versions: %s has a DeprecationWarning and is not Deprecated", v.Name)
	}
	for _, column := range v.PrinterColumns {
		if column.Name == "" || column.JSONPath == "" {
			mistake("Versions: %s: PrinterColumns: %q with path %q: name and path are required", v.Name, column.Name, column.JSONPath)
		}
	}
	return errs
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

// pluralOf guesses the plural of a kind's name, in lower case.
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

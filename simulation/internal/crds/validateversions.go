package crds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSelectableFields is the number of selectable fields that a version may have.
const maxSelectableFields = 8

func validateVersions(spec *apiextensions.CustomResourceDefinitionSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	stored := 0
	names := map[string]bool{}
	for i, v := range spec.Versions {
		path := path.Child("versions").Index(i)
		if v.Storage {
			stored++
		}
		names[v.Name] = true
		if problems := utilvalidation.IsDNS1035Label(v.Name); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Child("name"), v.Name, strings.Join(problems, ",")))
		}
		errs = append(errs, validateDeprecation(v, path.Child("deprecationWarning"))...)
		errs = append(errs, validateSchema(v.Schema, hasStatus(subresourcesOf(spec, v)), path.Child("schema"))...)
		errs = append(errs, validateScale(v.Subresources, path.Child("subresources"))...)
		errs = append(errs, validateColumns(v.AdditionalPrinterColumns, path)...)
		switch {
		case len(v.SelectableFields) == 0:
		case !hasSchema(v.Schema):
			errs = append(errs, field.Invalid(path.Child("selectableFields"), "",
				"may only be set when `version.schema.openAPIV3Schema` is not included"))
		default:
			errs = append(errs, validateSelectable(v.SelectableFields, v.Schema.OpenAPIV3Schema, path)...)
		}
	}
	if len(names) < len(spec.Versions) {
		errs = append(errs, field.Invalid(path.Child("versions"), spec.Versions, "must contain unique version names"))
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(path.Child("versions"), spec.Versions, "must have exactly one version "+
			"marked as storage version"))
	}
	if spec.Version != "" {
		if problems := utilvalidation.IsDNS1035Label(spec.Version); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Child("version"), spec.Version, strings.Join(problems, ",")))
		}
	}
	return errs
}

// specHasDefault reports whether a schema of a definition has a default.
func specHasDefault(spec *apiextensions.CustomResourceDefinitionSpec) bool {
	return hasSchema(spec.Validation) && hasDefault(spec.Validation.OpenAPIV3Schema) ||
		slices.ContainsFunc(spec.Versions, func(v apiextensions.CustomResourceDefinitionVersion) bool {
			return hasSchema(v.Schema) && hasDefault(v.Schema.OpenAPIV3Schema)
		})
}

// hasDefault reports whether a schema, or one inside of it, has a default.
func hasDefault(s *apiextensions.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	list := func(all []apiextensions.JSONSchemaProps) bool {
		return slices.ContainsFunc(all, func(s apiextensions.JSONSchemaProps) bool { return hasDefault(&s) })
	}
	byName := func(all map[string]apiextensions.JSONSchemaProps) bool {
		return list(slices.Collect(maps.Values(all)))
	}
	return s.Default != nil || s.Items != nil && (hasDefault(s.Items.Schema) || list(s.Items.JSONSchemas)) ||
		list(s.AllOf) || list(s.AnyOf) || list(s.OneOf) || hasDefault(s.Not) || byName(s.Properties) ||
		byName(s.PatternProperties) || byName(s.Definitions) ||
		s.AdditionalProperties != nil && hasDefault(s.AdditionalProperties.Schema) || s.AdditionalItems != nil &&
		hasDefault(s.AdditionalItems.Schema)
}

func hasSchema(v *apiextensions.CustomResourceValidation) bool {
	return v != nil && v.OpenAPIV3Schema != nil
}

func hasStatus(s *apiextensions.CustomResourceSubresources) bool { return s != nil && s.Status != nil }

// subresourcesOf returns the subresources of a version, which are at the top if all versions have the same.
func subresourcesOf(
	spec *apiextensions.CustomResourceDefinitionSpec, v apiextensions.CustomResourceDefinitionVersion,
) *apiextensions.CustomResourceSubresources {
	for _, other := range spec.Versions {
		if other.Subresources == nil {
			continue
		}
		first := slices.IndexFunc(spec.Versions, func(o apiextensions.CustomResourceDefinitionVersion) bool {
			return o.Name == v.Name
		})
		return spec.Versions[first].Subresources // also if several versions have the name
	}
	return spec.Subresources
}

func validateDeprecation(v apiextensions.CustomResourceDefinitionVersion, path *field.Path) field.ErrorList {
	warning := v.DeprecationWarning
	invalid := func(problem string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, warning, problem)}
	}
	switch {
	case warning == nil:
		return nil
	case !v.Deprecated:
		return invalid("can only be set for deprecated versions")
	case len(*warning) > 256:
		return invalid("must be <= 256 characters long")
	case *warning == "":
		return invalid("must not be an empty string")
	}
	if i := strings.IndexFunc(*warning, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return invalid(fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found "+
			"at index %d", i))
	}
	return nil
}

func validateScale(s *apiextensions.CustomResourceSubresources, path *field.Path) field.ErrorList {
	if s == nil || s.Scale == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(name, value, within string) {
		path := path.Child("scale." + name)
		switch problem := simplePath(value); {
		case value == "":
			errs = append(errs, field.Required(path, ""))
		case problem != "":
			errs = append(errs, field.Invalid(path, value, problem))
		case !strings.HasPrefix(value, "."+within+"."):
			errs = append(errs, field.Invalid(path, value, "should be a json path under ."+within))
		}
	}
	check("specReplicasPath", s.Scale.SpecReplicasPath, "spec")
	check("statusReplicasPath", s.Scale.StatusReplicasPath, "status")
	if selector := s.Scale.LabelSelectorPath; selector != nil && *selector != "" {
		path := path.Child("scale.labelSelectorPath")
		if problem := simplePath(*selector); problem != "" {
			errs = append(errs, field.Invalid(path, *selector, problem))
		} else if !strings.HasPrefix(*selector, ".spec.") && !strings.HasPrefix(*selector, ".status.") {
			errs = append(errs, field.Invalid(path, selector, "should be a json path under either .spec or .status"))
		}
	}
	return errs
}

func simplePath(path string) string {
	if !strings.HasPrefix(path, ".") {
		return "must be a simple json path starting with ."
	}
	return ""
}

func validateColumns(columns []apiextensions.CustomResourceColumnDefinition, path *field.Path) field.ErrorList {
	types := []string{"boolean", "date", "integer", "number", "string"}
	formats := []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
	var errs field.ErrorList
	for i, c := range columns {
		path := path.Child("additionalPrinterColumns").Index(i)
		if c.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		}
		switch problem := "must be one of " + strings.Join(types, ","); {
		case c.Type == "":
			errs = append(errs, field.Required(path.Child("type"), problem))
		case !slices.Contains(types, c.Type):
			errs = append(errs, field.Invalid(path.Child("type"), c.Type, problem))
		}
		if c.Format != "" && !slices.Contains(formats, c.Format) {
			errs = append(errs,
				field.Invalid(path.Child("format"), c.Format, "must be one of "+strings.Join(formats, ",")))
		}
		switch problem := simplePath(c.JSONPath); {
		case c.JSONPath == "":
			errs = append(errs, field.Required(path.Child("JSONPath"), ""))
		case problem != "":
			errs = append(errs, field.Invalid(path.Child("JSONPath"), c.JSONPath, problem))
		}
	}
	return errs
}

func validateSelectable(
	selectable []apiextensions.SelectableField, props *apiextensions.JSONSchemaProps, path *field.Path,
) field.ErrorList {
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("schema.openAPIV3Schema"), "", err.Error())}
	}
	path = path.Child("selectableFields")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, f := range selectable {
		path := path.Index(i).Child("jsonPath")
		if f.JSONPath == "" {
			errs = append(errs, field.Required(path, ""))
			continue
		}
		found, s, err := selectedField(f.JSONPath, structural)
		if err != nil {
			errs = append(errs, field.Invalid(path, f.JSONPath, fmt.Sprintf("is an invalid path: %v", err)))
			continue
		}
		if found.Root().String() == "metadata" {
			errs = append(errs, field.Invalid(path, f.JSONPath, "must not point to fields in metadata"))
		}
		if s == nil || !slices.Contains([]string{"string", "boolean", "integer"}, s.Type) {
			errs = append(errs, field.Invalid(path, f.JSONPath,
				"must point to a field of type string, boolean or integer. Enum string fields and strings with "+
					"formats are allowed."))
		}
		if seen[found.String()] {
			errs = append(errs, field.Duplicate(path, f.JSONPath))
		}
		seen[found.String()] = true
	}
	if len(seen) > maxSelectableFields {
		errs = append(errs, field.TooMany(path, len(seen), maxSelectableFields))
	}
	return errs
}

// selectedField returns the path of a selectable field, and its schema. The function of apiextensions-apiserver panics
// at a field within one whose properties have any value, and so does the real server.
func selectedField(
	text string, schema *structuralschema.Structural,
) (path *field.Path, found *structuralschema.Structural, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("does not refer to a valid field")
		}
	}()
	return cel.ValidFieldPath(text, schema, cel.WithFieldPathAllowArrayNotation(false))
}

// validateSchema validates the schema of one version, or the one that all versions share.
func validateSchema(v *apiextensions.CustomResourceValidation, statusEnabled bool, path *field.Path) field.ErrorList {
	if !hasSchema(v) {
		return nil
	}
	props := v.OpenAPIV3Schema
	path = path.Child("openAPIV3Schema")
	var errs, unconvertible field.ErrorList
	if statusEnabled {
		errs = append(errs, validateRoot(props, path)...)
	}
	if props.Nullable {
		errs = append(errs, field.Forbidden(path.Child("nullable"), "nullable cannot be true at the root"))
	}
	structural, err := structuralschema.NewStructural(props)
	checkRules := false
	if err != nil {
		unconvertible = field.ErrorList{field.Invalid(path, "", err.Error())}
	} else if problems := structuralschema.ValidateStructural(path, structural); len(problems) > 0 {
		errs = append(errs, sorted(problems)...)
	} else if problems, err := defaulting.ValidateDefaults(context.Background(), path, structural, true,
		true); err != nil {
		errs = append(errs, field.Invalid(path, "", err.Error()))
	} else if len(problems) > 0 {
		errs = append(errs, sorted(problems)...)
	} else {
		checkRules = true
	}
	errs = append(errs, checkProps(props, structural, path, checkRules)...)
	if len(errs) == 0 {
		errs = append(errs, unconvertible...)
	}
	if len(errs) == 0 {
		if _, _, err := validation.NewSchemaValidator(props); err != nil {
			errs = append(errs, field.Invalid(path, "", fmt.Sprintf("error building validator: %v", err)))
		}
	}
	return errs
}

// validateRoot checks that a schema has no rules at its root that would not apply to the status alone.
func validateRoot(props *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	allowed := []string{
		"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum",
		"MaxLength", "MinLength",
		"Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties",
		"ExternalDocs", "Example",
		"XPreserveUnknownFields", "XValidations",
	}
	value := reflect.ValueOf(props).Elem()
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			continue
		}
		switch name := value.Type().Field(i).Name; {
		case name == "Type" && props.Type != "object":
			return field.ErrorList{field.Invalid(path.Child("type"), props.Type,
				`only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)}
		case !slices.Contains(allowed, name):
			return field.ErrorList{
				field.Invalid(path, *props,
					fmt.Sprintf(
						`only %v fields are allowed at the root of the schema if the status subresource is enabled`,
						allowed)),
			}
		}
	}
	return nil
}

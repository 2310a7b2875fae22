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

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/clientconfig"
)

// maxSelectableFields is the number of selectable fields that a version may have.
const maxSelectableFields = 8

// validate returns what is wrong with a definition; old is nil for a new one. The real server validates the internal form,
// in which schemas that all versions share are at spec.validation; so the paths in its messages are those of that form.
//
// Not checked: rules that the real server relaxes for objects that older versions have stored.
func (d *definitions) validate(obj, old apiserver.Object) field.ErrorList {
	crd := internalForm(obj)
	name := func(name string, prefix bool) []string {
		problems := metavalidation.NameIsDNSSubdomain(name, prefix)
		if name != crd.Spec.Names.Plural+"."+crd.Spec.Group {
			problems = append(problems, `must be spec.names.plural+"."+spec.group`)
		}
		return problems
	}
	var errs field.ErrorList
	if old == nil {
		errs = apiserver.ValidateMetadata(obj, false, name)
	} else {
		errs = apiserver.ValidateMetadataUpdate(obj, old)
	}
	path := field.NewPath("spec")
	errs = append(errs, validateSpec(&crd.Spec, path)...)
	if old != nil {
		errs = append(errs, validateImmutable(crd, internalForm(old), path)...)
	}
	errs = append(errs, validateNames(crd.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))...)
	errs = append(errs, validateStoredVersions(crd)...)
	if old == nil || !approvedAlike(obj, old) {
		errs = append(errs, validateApproval(obj)...)
	}
	if preserve := crd.Spec.PreserveUnknownFields; preserve != nil && *preserve {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), preserve,
			"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	if len(errs) == 0 {
		if _, err := d.compiler.Kinds(definition(obj), nil); err != nil {
			errs = append(errs, field.Invalid(path.Child("versions"), "", err.Error()))
		}
	}
	return errs
}

// validateDefinitionStatus validates an update of the status.
func validateDefinitionStatus(_ string, obj, old apiserver.Object) field.ErrorList {
	names := internalForm(obj).Status.AcceptedNames
	return append(apiserver.ValidateMetadataUpdate(obj, old), validateNames(names, field.NewPath("status", "acceptedNames"))...)
}

func internalForm(obj apiserver.Object) *apiextensions.CustomResourceDefinition {
	internal := &apiextensions.CustomResourceDefinition{}
	in := definition(obj).DeepCopy()
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(in, internal, nil); err != nil {
		panic(fmt.Sprintf("convert a definition: %v", err)) // it was decoded from JSON
	}
	return internal
}

func validateImmutable(crd, old *apiextensions.CustomResourceDefinition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if apiextensions.IsCRDConditionTrue(old, apiextensions.Established) {
		errs = append(errs, metavalidation.ValidateImmutableField(crd.Spec.Scope, old.Spec.Scope, path.Child("scope"))...)
		errs = append(errs, metavalidation.ValidateImmutableField(crd.Spec.Names.Kind, old.Spec.Names.Kind, path.Child("names", "kind"))...)
	}
	errs = append(errs, metavalidation.ValidateImmutableField(crd.Spec.Group, old.Spec.Group, path.Child("group"))...)
	return append(errs, metavalidation.ValidateImmutableField(crd.Spec.Names.Plural, old.Spec.Names.Plural, path.Child("names", "plural"))...)
}

func validateSpec(spec *apiextensions.CustomResourceDefinitionSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch problems := utilvalidation.IsDNS1123Subdomain(spec.Group); {
	case spec.Group == "":
		errs = append(errs, field.Required(path.Child("group"), ""))
	case len(problems) > 0:
		errs = append(errs, field.Invalid(path.Child("group"), spec.Group, strings.Join(problems, ",")))
	case !strings.Contains(spec.Group, "."):
		errs = append(errs, field.Invalid(path.Child("group"), spec.Group, "should be a domain with at least one dot"))
	}
	errs = append(errs, validateChoice(path.Child("scope"), string(spec.Scope), string(apiextensions.ClusterScoped), string(apiextensions.NamespaceScoped))...)
	if !hasSchema(spec.Validation) {
		for i, v := range spec.Versions {
			if !hasSchema(v.Schema) {
				errs = append(errs, field.Required(path.Child("versions").Index(i).Child("schema", "openAPIV3Schema"), ""))
			}
		}
	}
	if preserve := spec.PreserveUnknownFields; preserve != nil && *preserve && specHasDefault(spec) {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), true, "must be false in order to use defaults in the schema"))
	}
	errs = append(errs, validateVersions(spec, path)...)
	for _, required := range []struct{ name, value string }{
		{"plural", spec.Names.Plural}, {"singular", spec.Names.Singular}, {"kind", spec.Names.Kind}, {"listKind", spec.Names.ListKind},
	} {
		if required.value == "" {
			errs = append(errs, field.Required(path.Child("names", required.name), ""))
		}
	}
	errs = append(errs, validateNames(spec.Names, path.Child("names"))...)
	statusEnabled := hasStatus(spec.Subresources) ||
		slices.ContainsFunc(spec.Versions, func(v apiextensions.CustomResourceDefinitionVersion) bool { return hasStatus(v.Subresources) })
	errs = append(errs, validateSchema(spec.Validation, statusEnabled, path.Child("validation"))...)
	errs = append(errs, validateScale(spec.Subresources, path.Child("subresources"))...)
	errs = append(errs, validateColumns(spec.AdditionalPrinterColumns, path)...)
	switch {
	case len(spec.SelectableFields) == 0:
	case spec.Validation == nil:
		errs = append(errs, field.Invalid(path.Child("selectableFields"), "", "may only be set when validations.schema is included"))
	default:
		errs = append(errs, validateSelectable(spec.SelectableFields, spec.Validation.OpenAPIV3Schema, path)...)
	}
	if c, preserve := spec.Conversion, spec.PreserveUnknownFields; c != nil && c.Strategy != apiextensions.NoneConverter && preserve != nil && *preserve {
		errs = append(errs, field.Invalid(path.Child("conversion", "strategy"), c.Strategy, "must be None if spec.preserveUnknownFields is true"))
	}
	return append(errs, validateConversion(spec.Conversion, path.Child("conversion"))...)
}

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
			errs = append(errs, field.Invalid(path.Child("selectableFields"), "", "may only be set when `version.schema.openAPIV3Schema` is not included"))
		default:
			errs = append(errs, validateSelectable(v.SelectableFields, v.Schema.OpenAPIV3Schema, path)...)
		}
	}
	if len(names) < len(spec.Versions) {
		errs = append(errs, field.Invalid(path.Child("versions"), spec.Versions, "must contain unique version names"))
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(path.Child("versions"), spec.Versions, "must have exactly one version marked as storage version"))
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
		list(s.AllOf) || list(s.AnyOf) || list(s.OneOf) || hasDefault(s.Not) || byName(s.Properties) || byName(s.PatternProperties) || byName(s.Definitions) ||
		s.AdditionalProperties != nil && hasDefault(s.AdditionalProperties.Schema) || s.AdditionalItems != nil && hasDefault(s.AdditionalItems.Schema)
}

func hasSchema(v *apiextensions.CustomResourceValidation) bool {
	return v != nil && v.OpenAPIV3Schema != nil
}

func hasStatus(s *apiextensions.CustomResourceSubresources) bool { return s != nil && s.Status != nil }

// subresourcesOf returns the subresources of a version, which are at the top if all versions have the same.
func subresourcesOf(spec *apiextensions.CustomResourceDefinitionSpec, v apiextensions.CustomResourceDefinitionVersion) *apiextensions.CustomResourceSubresources {
	for _, other := range spec.Versions {
		if other.Subresources == nil {
			continue
		}
		first := slices.IndexFunc(spec.Versions, func(o apiextensions.CustomResourceDefinitionVersion) bool { return o.Name == v.Name })
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
		return invalid(fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	return nil
}

func validateNames(names apiextensions.CustomResourceDefinitionNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(path *field.Path, name, prefix string) {
		text := name
		if prefix != "" {
			text = strings.ToLower(name)
		}
		if problems := utilvalidation.IsDNS1035Label(text); len(problems) > 0 {
			errs = append(errs, field.Invalid(path, name, prefix+strings.Join(problems, ",")))
		}
	}
	const mixed = "may have mixed case, but should otherwise match: "
	for _, n := range []struct{ field, name, prefix string }{
		{"plural", names.Plural, ""}, {"singular", names.Singular, ""}, {"kind", names.Kind, mixed}, {"listKind", names.ListKind, mixed},
	} {
		if n.name != "" {
			check(path.Child(n.field), n.name, n.prefix)
		}
	}
	for i, name := range names.ShortNames {
		check(path.Child("shortNames").Index(i), name, "")
	}
	if names.Kind != "" && names.Kind == names.ListKind {
		errs = append(errs, field.Invalid(path.Child("listKind"), names.ListKind, "kind and listKind may not be the same"))
	}
	for i, name := range names.Categories {
		check(path.Child("categories").Index(i), name, "")
	}
	return errs
}

func validateStoredVersions(crd *apiextensions.CustomResourceDefinition) field.ErrorList {
	path := field.NewPath("status", "storedVersions")
	stored := crd.Status.StoredVersions
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(path, stored, "must have at least one stored version")}
	}
	var errs field.ErrorList
	missing := slices.Clone(stored)
	for _, v := range crd.Spec.Versions {
		i := slices.Index(missing, v.Name)
		if v.Storage && i < 0 {
			errs = append(errs, field.Invalid(path, stored, "must have the storage version "+v.Name))
		}
		if i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		}
	}
	for i, v := range stored {
		if slices.Contains(missing, v) {
			errs = append(errs, field.Invalid(path.Index(i), v, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, "+
				"and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", v)))
		}
	}
	return errs
}

// approvedAlike reports whether two definitions have the same state of approval. Then it is not checked.
func approvedAlike(obj, old apiserver.Object) bool {
	a, _ := apihelpers.GetAPIApprovalState(obj.GetAnnotations())
	b, _ := apihelpers.GetAPIApprovalState(old.GetAnnotations())
	return a == b
}

// validateApproval checks that a definition in a group of Kubernetes is approved.
func validateApproval(obj apiserver.Object) field.ErrorList {
	if !apihelpers.IsProtectedCommunityGroup(definition(obj).Spec.Group) {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(apiextensionsv1.KubeAPIApprovedAnnotation)
	switch state, reason := apihelpers.GetAPIApprovalState(obj.GetAnnotations()); state {
	case apihelpers.APIApproved, apihelpers.APIApprovalBypassed:
		return nil
	case apihelpers.APIApprovalMissing:
		return field.ErrorList{field.Required(path, reason)}
	default:
		return field.ErrorList{field.Invalid(path, obj.GetAnnotations()[apiextensionsv1.KubeAPIApprovedAnnotation], reason)}
	}
}

func validateChoice(path *field.Path, value string, choices ...string) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(choices, value):
		return field.ErrorList{field.NotSupported(path, value, choices)}
	}
	return nil
}

// validateConversion checks what the strategy needs. URLs, services and certificates of webhooks are not checked.
func validateConversion(c *apiextensions.CustomResourceConversion, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := validateChoice(path.Child("strategy"), string(c.Strategy), string(apiextensions.NoneConverter), string(apiextensions.WebhookConverter))
	client, versions := path.Child("webhookClientConfig"), path.Child("conversionReviewVersions")
	if c.Strategy != apiextensions.WebhookConverter {
		if c.WebhookClientConfig != nil {
			errs = append(errs, field.Forbidden(client, "should not be set when strategy is not set to Webhook"))
		}
		if len(c.ConversionReviewVersions) > 0 {
			errs = append(errs, field.Forbidden(versions, "should not be set when strategy is not set to Webhook"))
		}
		return errs
	}
	if w := c.WebhookClientConfig; w == nil {
		errs = append(errs, field.Required(client, "required when strategy is set to Webhook"))
	} else {
		var service *clientconfig.Service
		if w.Service != nil {
			service = &clientconfig.Service{Namespace: w.Service.Namespace, Name: w.Service.Name, Path: w.Service.Path, Port: w.Service.Port}
		}
		errs = append(errs, clientconfig.Validate(client, w.URL, service)...)
	}
	return append(errs, clientconfig.ValidateReviewVersions(versions, c.ConversionReviewVersions, "")...)
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
			errs = append(errs, field.Invalid(path.Child("format"), c.Format, "must be one of "+strings.Join(formats, ",")))
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

func validateSelectable(selectable []apiextensions.SelectableField, props *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
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
				"must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."))
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

// selectedField returns the path of a selectable field, and its schema. The function of apiextensions-apiserver panics at a
// field within one whose properties have any value, and so does the real server.
func selectedField(text string, schema *structuralschema.Structural) (path *field.Path, found *structuralschema.Structural, err error) {
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
	} else if problems, err := defaulting.ValidateDefaults(context.Background(), path, structural, true, true); err != nil {
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
		"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength",
		"Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
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
			return field.ErrorList{field.Invalid(path, *props, fmt.Sprintf(`only %v fields are allowed at the root of the schema if the status subresource is enabled`, allowed))}
		}
	}
	return nil
}

package crds

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/clientconfig"
)

// validate returns what is wrong with a definition; old is nil for a new one. The real server validates the internal
// form, in which schemas that all versions share are at spec.validation; so the paths in its messages are those of that
// form.
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
	return append(apiserver.ValidateMetadataUpdate(obj, old),
		validateNames(names, field.NewPath("status", "acceptedNames"))...)
}

func internalForm(obj apiserver.Object) *apiextensions.CustomResourceDefinition {
	internal := &apiextensions.CustomResourceDefinition{}
	in := definition(obj).DeepCopy()
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(in,
		internal, nil); err != nil {
		panic(fmt.Sprintf("convert a definition: %v", err)) // it was decoded from JSON
	}
	return internal
}

func validateImmutable(crd, old *apiextensions.CustomResourceDefinition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if apiextensions.IsCRDConditionTrue(old, apiextensions.Established) {
		errs = append(errs, metavalidation.ValidateImmutableField(crd.Spec.Scope, old.Spec.Scope,
			path.Child("scope"))...)
		errs = append(errs, metavalidation.ValidateImmutableField(crd.Spec.Names.Kind, old.Spec.Names.Kind,
			path.Child("names", "kind"))...)
	}
	errs = append(errs, metavalidation.ValidateImmutableField(crd.Spec.Group, old.Spec.Group, path.Child("group"))...)
	return append(errs, metavalidation.ValidateImmutableField(crd.Spec.Names.Plural, old.Spec.Names.Plural,
		path.Child("names", "plural"))...)
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
	errs = append(errs, validateChoice(path.Child("scope"), string(spec.Scope), string(apiextensions.ClusterScoped),
		string(apiextensions.NamespaceScoped))...)
	if !hasSchema(spec.Validation) {
		for i, v := range spec.Versions {
			if !hasSchema(v.Schema) {
				errs = append(errs,
					field.Required(path.Child("versions").Index(i).Child("schema", "openAPIV3Schema"), ""))
			}
		}
	}
	if preserve := spec.PreserveUnknownFields; preserve != nil && *preserve && specHasDefault(spec) {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), true, "must be false in order to use "+
			"defaults in the schema"))
	}
	errs = append(errs, validateVersions(spec, path)...)
	for _, required := range []struct{ name, value string }{
		{"plural", spec.Names.Plural},
		{"singular", spec.Names.Singular},
		{"kind", spec.Names.Kind},
		{"listKind", spec.Names.ListKind},
	} {
		if required.value == "" {
			errs = append(errs, field.Required(path.Child("names", required.name), ""))
		}
	}
	errs = append(errs, validateNames(spec.Names, path.Child("names"))...)
	statusEnabled := hasStatus(spec.Subresources) ||
		slices.ContainsFunc(spec.Versions, func(v apiextensions.CustomResourceDefinitionVersion) bool {
			return hasStatus(v.Subresources)
		})
	errs = append(errs, validateSchema(spec.Validation, statusEnabled, path.Child("validation"))...)
	errs = append(errs, validateScale(spec.Subresources, path.Child("subresources"))...)
	errs = append(errs, validateColumns(spec.AdditionalPrinterColumns, path)...)
	switch {
	case len(spec.SelectableFields) == 0:
	case spec.Validation == nil:
		errs = append(errs,
			field.Invalid(path.Child("selectableFields"), "", "may only be set when validations.schema is included"))
	default:
		errs = append(errs, validateSelectable(spec.SelectableFields, spec.Validation.OpenAPIV3Schema, path)...)
	}
	if c, preserve := spec.Conversion, spec.PreserveUnknownFields; c != nil &&
		c.Strategy != apiextensions.NoneConverter && preserve != nil && *preserve {
		errs = append(errs, field.Invalid(path.Child("conversion", "strategy"), c.Strategy,
			"must be None if spec.preserveUnknownFields is true"))
	}
	return append(errs, validateConversion(spec.Conversion, path.Child("conversion"))...)
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
		{"plural", names.Plural, ""},
		{"singular", names.Singular, ""},
		{"kind", names.Kind, mixed},
		{"listKind", names.ListKind, mixed},
	} {
		if n.name != "" {
			check(path.Child(n.field), n.name, n.prefix)
		}
	}
	for i, name := range names.ShortNames {
		check(path.Child("shortNames").Index(i), name, "")
	}
	if names.Kind != "" && names.Kind == names.ListKind {
		errs = append(errs,
			field.Invalid(path.Child("listKind"), names.ListKind, "kind and listKind may not be the same"))
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
			errs = append(errs, field.Invalid(path.Index(i), v,
				fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, "+
					"and must remain in spec.versions until a storage migration ensures no data remains persisted in "+
					"%[1]s and removes %[1]s from status.storedVersions", v)))
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
		return field.ErrorList{field.Invalid(path, obj.GetAnnotations()[apiextensionsv1.KubeAPIApprovedAnnotation],
			reason)}
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
	errs := validateChoice(path.Child("strategy"), string(c.Strategy), string(apiextensions.NoneConverter),
		string(apiextensions.WebhookConverter))
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
			service = &clientconfig.Service{
				Namespace: w.Service.Namespace, Name: w.Service.Name, Path: w.Service.Path,
				Port: w.Service.Port,
			}
		}
		errs = append(errs, clientconfig.Validate(client, w.URL, service)...)
	}
	return append(errs, clientconfig.ValidateReviewVersions(versions, c.ConversionReviewVersions, "")...)
}

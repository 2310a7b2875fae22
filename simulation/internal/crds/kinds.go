package crds

import (
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/util/jsonpath"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// version is one version of a custom resource.
type version struct {
	kind   schema.GroupVersionKind
	schema *compiled
	// base are the rules of a custom resource without a schema.
	base       apiserver.Rules
	scale      *apiextensionsv1.CustomResourceSubresourceScale
	selectable []selectableField
	// versions are all versions of the resource by name, and convert converts between them.
	versions map[string]*version
	convert  Converter
}

// Converter calls another program to convert an object to another version of its resource. It may change obj.
type Converter func(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error)

// Kinds returns the kinds of the served versions of a CustomResourceDefinition. convert converts between them; nil
// changes the version and nothing else, as the strategy None does. Errors: a schema that is not structural, a path that
// cannot be parsed, no version that is stored.
func (c *Compiler) Kinds(crd *apiextensionsv1.CustomResourceDefinition, convert Converter) ([]*apiserver.Kind, error) {
	var served []*apiserver.Kind
	var storage *apiserver.Kind
	versions := map[string]*version{}
	for i := range crd.Spec.Versions {
		spec := &crd.Spec.Versions[i]
		if !spec.Served && !spec.Storage {
			continue
		}
		v, err := c.version(&crd.Spec, spec)
		if err != nil {
			return nil, fmt.Errorf("kind %s of version %s: %w", crd.Spec.Names.Kind, spec.Name, err)
		}
		versions[spec.Name] = v
		v.versions, v.convert = versions, convert
		kind := v.newKind(&crd.Spec, spec)
		if spec.Served {
			served = append(served, kind)
		}
		if spec.Storage {
			storage = kind
		}
	}
	if storage == nil {
		return nil, fmt.Errorf("kind %s: no version is stored", crd.Spec.Names.Kind)
	}
	for _, kind := range served {
		if kind != storage {
			kind.Storage = storage
		}
	}
	return served, nil
}

func (c *Compiler) version(
	crd *apiextensionsv1.CustomResourceDefinitionSpec, spec *apiextensionsv1.CustomResourceDefinitionVersion,
) (*version, error) {
	if spec.Schema == nil || spec.Schema.OpenAPIV3Schema == nil {
		return nil, errors.New("the version has no schema")
	}
	s, err := c.compile(spec.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	v := &version{kind: schema.GroupVersionKind{Group: crd.Group, Version: spec.Name, Kind: crd.Names.Kind}, schema: s}
	for _, f := range spec.SelectableFields {
		path, err := newSelectableField(f.JSONPath)
		if err != nil {
			return nil, err
		}
		v.selectable = append(v.selectable, path)
	}
	if spec.Subresources != nil {
		v.scale = spec.Subresources.Scale
	}
	return v, nil
}

func (v *version) newKind(
	crd *apiextensionsv1.CustomResourceDefinitionSpec, spec *apiextensionsv1.CustomResourceDefinitionVersion,
) *apiserver.Kind {
	kind := apiserver.Custom(v.kind, crd.Names.Plural)
	kind.Singular, kind.ListKind, kind.ShortNames = crd.Names.Singular, crd.Names.ListKind, crd.Names.ShortNames
	kind.Categories = crd.Names.Categories
	kind.ClusterScoped = crd.Scope == apiextensionsv1.ClusterScoped
	kind.Status = spec.Subresources != nil && spec.Subresources.Status != nil
	if v.scale != nil {
		kind.Scale = &apiserver.Scale{Replicas: v.scale.SpecReplicasPath, StatusReplicas: v.scale.StatusReplicasPath}
		if selector := v.scale.LabelSelectorPath; selector != nil {
			kind.Scale.Selector = *selector
		}
	}
	kind.Deprecation = deprecation(crd, spec)
	kind.Types, kind.OpenAPI = v.schema.types, v.schema.openAPI
	kind.From, kind.Convert, kind.External = v.from, v.fromPart, v.convert != nil
	v.base = kind.Rules
	kind.Rules = v.rules()
	return kind
}

// deprecation returns the warning of a deprecated version, which by default names the newest served version that is
// better.
func deprecation(
	crd *apiextensionsv1.CustomResourceDefinitionSpec, spec *apiextensionsv1.CustomResourceDefinitionVersion,
) string {
	switch {
	case !spec.Deprecated:
		return ""
	case spec.DeprecationWarning != nil:
		return *spec.DeprecationWarning
	}
	best := spec.Name
	for _, v := range crd.Versions {
		if v.Served && !v.Deprecated && apiversion.CompareKubeAwareVersionStrings(v.Name, best) > 0 {
			best = v.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", crd.Group, spec.Name, crd.Names.Kind)
	if best != spec.Name {
		text += fmt.Sprintf("; use %s/%s %s", crd.Group, best, crd.Names.Kind)
	}
	return text
}

// from returns an object of any version in this version, as the real server reads it: its fields are pruned and
// defaulted by the schema of its own version, and then pruned by that of this one, which adds no defaults.
func (v *version) from(obj apiserver.Object) (apiserver.Object, error) {
	source, err := v.sourceOf(obj)
	if err != nil {
		return nil, err
	}
	u := obj.(*unstructured.Unstructured).DeepCopy()
	source.decode(u)
	if source == v {
		return u, nil
	}
	version := u.GetResourceVersion()
	u.SetResourceVersion("") // it is not part of stored objects, which the real server converts
	if u, err = v.converted(u); err != nil {
		return nil, err
	}
	u.SetResourceVersion(version)
	_, err = v.coerce(u, false)
	return u, err
}

// fromPart converts a part of an object.
func (v *version) fromPart(obj apiserver.Object) (apiserver.Object, error) {
	if _, err := v.sourceOf(obj); err != nil {
		return nil, err
	}
	return v.converted(obj.(*unstructured.Unstructured).DeepCopy())
}

func (v *version) sourceOf(obj apiserver.Object) (*version, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if source := v.versions[gvk.Version]; source != nil && gvk.Group == v.kind.Group {
		return source, nil
	}
	return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", gvk.GroupVersion())
}

func (v *version) converted(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if v.convert != nil {
		return v.convert(u, v.kind.GroupVersion())
	}
	u.SetAPIVersion(v.kind.GroupVersion().String())
	return u, nil
}

func (v *version) rules() apiserver.Rules {
	rules := v.base
	rules.Coerce = v.coerce
	rules.Default = v.setDefaults
	rules.Stored = v.stored
	rules.Check = v.check
	if len(v.selectable) > 0 {
		rules.Fields = v.fields
		for _, f := range v.selectable {
			rules.FieldLabels = append(rules.FieldLabels, f.label)
		}
	}
	return rules
}

// coerce removes unknown fields, nulls that the schema forbids, and unknown metadata of embedded resources.
func (v *version) coerce(obj apiserver.Object, strict bool) (unknown []error, err error) {
	u := obj.(*unstructured.Unstructured)
	if u.GetKind() != v.kind.Kind || u.GroupVersionKind().Group != v.kind.Group {
		return nil, nil // is rejected later
	}
	options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: strict}
	paths := pruning.PruneWithOptions(u.Object, v.schema.structural, true, options)
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, v.schema.structural)
	if v.schema.embedded {
		failed, embedded := objectmeta.CoerceWithOptions(nil, u.Object, v.schema.structural, false,
			objectmeta.CoerceOptions{ReturnUnknownFieldPaths: strict})
		if failed != nil {
			return nil, failed
		}
		paths = append(paths, embedded...)
	}
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf(`unknown field "%s"`, path))
	}
	return unknown, nil
}

func (v *version) setDefaults(obj apiserver.Object) {
	defaulting.Default(obj.(*unstructured.Unstructured).Object, v.schema.structural)
}

// stored gives an object the form that it has after a write and a read. It reports whether the read adds defaults.
func (v *version) stored(obj apiserver.Object) bool {
	v.base.Stored(obj)
	return v.decode(obj.(*unstructured.Unstructured))
}

// decode gives a stored object the form of this version's schema: it is pruned, and gets defaults. It reports whether
// it gets any.
func (v *version) decode(u *unstructured.Unstructured) (defaulted bool) {
	pruning.Prune(u.Object, v.schema.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, v.schema.structural)
	if v.schema.embedded {
		_ = objectmeta.Coerce(nil, u.Object, v.schema.structural, false, true) // no error: invalid metadata is dropped
	}
	before := countValues(u.Object)
	v.setDefaults(u)
	return countValues(u.Object) != before
}

// countValues returns the number of values that are not null. Each default adds one or more.
func countValues(value any) int {
	n := 1
	switch value := value.(type) {
	case nil:
		return 0
	case map[string]any:
		for _, v := range value {
			n += countValues(v)
		}
	case []any:
		for _, v := range value {
			n += countValues(v)
		}
	}
	return n
}

// selectableField is a field that requests can select by.
type selectableField struct {
	label string
	path  *jsonpath.JSONPath
}

func newSelectableField(text string) (selectableField, error) {
	path := jsonpath.New("selectableField").AllowMissingKeys(true)
	err := path.Parse("{" + text + "}")
	return selectableField{strings.TrimPrefix(text, "."), path}, err
}

// fields returns the values of the selectable fields.
func (v *version) fields(obj apiserver.Object) fields.Set {
	set := fields.Set{}
	for _, f := range v.selectable {
		set[f.label] = ""
		found, err := f.path.FindResults(obj.(*unstructured.Unstructured).Object)
		if err != nil || len(found) == 0 || len(found[0]) == 0 {
			continue
		}
		if value := found[0][0].Interface(); value != nil {
			set[f.label] = fmt.Sprint(value)
		}
	}
	return set
}

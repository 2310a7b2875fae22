package crds

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Limits of the estimated costs of CEL rules.
const (
	ruleCostLimit   = 10_000_000
	schemaCostLimit = 100_000_000
)

// propsCheck checks a schema and the schemas in it.
type propsCheck struct {
	// rules is true if CEL rules are compiled.
	rules bool
	total uint64 // of the estimated costs
	// expensive are the rules with the highest costs, at most four.
	expensive []ruleCost
}

// place is a schema in the schema of a custom resource.
type place struct {
	path *field.Path
	root bool
	// metadata is true within the metadata of an object. noDefaults is the reason why defaults are forbidden.
	metadata   bool
	noDefaults string
	// uncorrelatable is the outermost schema whose old values cannot be found; nil if they can.
	uncorrelatable *field.Path
	// structural is the schema, and declared its type in CEL; nil if rules are not checked.
	structural *structuralschema.Structural
	declared   *apiservercel.DeclType
	// cardinality is how often a value can exist in an object; nil if there is no limit.
	cardinality *uint64
}

// checkProps returns the errors of a schema: first those of the schema, then those of CEL rules.
func checkProps(
	props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural, path *field.Path, rules bool,
) field.ErrorList {
	c := &propsCheck{rules: rules}
	at := place{path: path, root: true, cardinality: new(uint64(1))}
	if rules {
		at.structural, at.declared = structural, model.SchemaDeclType(structural, true)
	}
	schemaErrs, ruleErrs := c.check(props, at)
	errs := append(schemaErrs, ruleErrs...)
	if c.total > schemaCostLimit {
		for _, rule := range c.expensive {
			errs = append(errs, field.Forbidden(rule.path, "contributed to estimated rule cost total exceeding cost "+
				"limit for entire OpenAPIv3 schema"))
		}
		errs = append(errs, field.Forbidden(path, tooExpensive("x-kubernetes-validations estimated rule cost total "+
			"for entire OpenAPIv3 schema", c.total, schemaCostLimit)))
	}
	return errs
}

func (c *propsCheck) check(s *apiextensions.JSONSchemaProps, at place) (schemaErrs, ruleErrs field.ErrorList) {
	if s == nil {
		return nil, nil
	}
	descend := func(child *apiextensions.JSONSchemaProps, to place) {
		x, y := c.check(child, to)
		schemaErrs, ruleErrs = append(schemaErrs, x...), append(ruleErrs, y...)
	}
	schemaErrs = append(schemaErrs, unsupported(s, at)...)
	if s.UniqueItems {
		schemaErrs = append(schemaErrs, field.Forbidden(at.path.Child("uniqueItems"), "uniqueItems cannot be set to "+
			"true since the runtime complexity becomes quadratic"))
	}
	if more := s.AdditionalProperties; more != nil {
		if len(s.Properties) > 0 && (!more.Allows || more.Schema != nil) {
			schemaErrs = append(schemaErrs, field.Forbidden(at.path.Child("additionalProperties"),
				"additionalProperties and properties are mutual exclusive"))
		}
		descend(more.Schema, at.additionalProperties(s))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		descend(&property, at.property(s, name))
	}
	c.checkNested(s, at, descend)
	if s.Items != nil {
		descend(s.Items.Schema, at.items(s))
	}
	schemaErrs = append(schemaErrs, checkExtensions(s, at.path)...)
	schemaErrs = append(schemaErrs, checkListKeys(s, at.path)...)
	schemaErrs = append(schemaErrs, checkRuleTexts(s, at.path.Child("x-kubernetes-validations"))...)
	if len(s.XValidations) > 0 && len(schemaErrs) == 0 && c.rules && !at.unruled() {
		ruleErrs = append(ruleErrs, c.compileRules(s, at)...)
	}
	return schemaErrs, ruleErrs
}

// additionalProperties returns the place of the schema for properties without a schema of their own.
func (at place) additionalProperties(s *apiextensions.JSONSchemaProps) place {
	to := at.child(s, at.path.Child("additionalProperties"))
	if at.metadata {
		to.noDefaults = " inside additionalProperties applying to object metadata"
	}
	if at.structural != nil && at.structural.AdditionalProperties != nil {
		to.describe(at.structural.AdditionalProperties.Structural, elementType(at.declared))
	}
	return to
}

// property returns the place of the schema of a property.
func (at place) property(s *apiextensions.JSONSchemaProps, name string) place {
	to := at.child(s, at.path.Child("properties").Key(name))
	if !cel.MapIsCorrelatable(s.XMapType) {
		to.forbidOld(at.path)
	}
	if (at.root || s.XEmbeddedResource) && slices.Contains([]string{"metadata", "kind", "apiVersion"}, name) {
		to.metadata = true
		if at.root {
			to.noDefaults = " in top-level " + name
		}
	}
	if at.structural != nil {
		if structural, exists := at.structural.Properties[name]; exists {
			to.describe(&structural, memberType(at.declared, name))
		}
	}
	return to
}

// items returns the place of the schema of the items of a list.
func (at place) items(s *apiextensions.JSONSchemaProps) place {
	to := at.child(s, at.path.Child("items"))
	if s.XListType == nil || *s.XListType != "map" {
		to.forbidOld(at.path)
	}
	if at.structural != nil {
		to.describe(at.structural.Items, elementType(at.declared))
	}
	return to
}

// checkNested checks the schemas that only validate values. They have no rules of their own.
func (c *propsCheck) checkNested(
	s *apiextensions.JSONSchemaProps, at place, descend func(*apiextensions.JSONSchemaProps, place),
) {
	nested := at
	nested.root, nested.structural, nested.declared = false, nil, nil
	visit := func(child *apiextensions.JSONSchemaProps, path *field.Path) {
		nested.path = path
		descend(child, nested)
	}
	visit(s.Not, at.path.Child("not"))
	for i := range s.AllOf {
		visit(&s.AllOf[i], at.path.Child("allOf").Index(i))
	}
	for i := range s.OneOf {
		visit(&s.OneOf[i], at.path.Child("oneOf").Index(i))
	}
	for i := range s.AnyOf {
		visit(&s.AnyOf[i], at.path.Child("anyOf").Index(i))
	}
}

// unruled reports whether the place is one where rules are not compiled.
func (at place) unruled() bool { return at.structural == nil || at.declared == nil }

// child returns the place of a schema inside s.
func (at place) child(s *apiextensions.JSONSchemaProps, path *field.Path) place {
	at.path, at.root, at.structural, at.declared = path, false, nil, nil
	factor := maxElements(s)
	if at.cardinality == nil || factor == nil {
		at.cardinality = nil
		return at
	}
	at.cardinality = new(multiply(*at.cardinality, *factor))
	return at
}

func (at *place) forbidOld(path *field.Path) {
	if at.uncorrelatable == nil {
		at.uncorrelatable = path
	}
}

// describe sets the schema and its type. The type of a property whose name CEL cannot express is derived from its
// schema.
func (at *place) describe(s *structuralschema.Structural, declared *apiservercel.DeclType) {
	if s != nil && declared == nil {
		declared = model.SchemaDeclType(s, s.XEmbeddedResource)
	}
	at.structural, at.declared = s, declared
}

func elementType(t *apiservercel.DeclType) *apiservercel.DeclType {
	if t == nil {
		return nil
	}
	return t.ElemType
}

func memberType(t *apiservercel.DeclType, name string) *apiservercel.DeclType {
	if t == nil {
		return nil
	}
	if escaped, ok := apiservercel.Escape(name); ok {
		if f := t.Fields[escaped]; f != nil {
			return f.Type
		}
	}
	return nil
}

// maxElements returns how many values a value of the schema contains; nil if there is no limit.
func maxElements(s *apiextensions.JSONSchemaProps) *uint64 {
	limit := (*int64)(nil)
	switch {
	case s.Type == "object" && s.AdditionalProperties != nil:
		limit = s.MaxProperties
	case s.Type == "array":
		limit = s.MaxItems
	default:
		return new(uint64(1))
	}
	if limit == nil {
		return nil
	}
	return new(uint64(max(0, *limit)))
}

func multiply(a, b uint64) uint64 {
	if a != 0 && math.MaxUint64/a < b {
		return math.MaxUint64
	}
	return a * b
}

// unsupported returns errors for the parts of OpenAPI that custom resources cannot have.
func unsupported(s *apiextensions.JSONSchemaProps, at place) field.ErrorList {
	var errs field.ErrorList
	types := []string{"array", "boolean", "integer", "number", "object", "string"}
	if s.Type != "" && !slices.Contains(types, s.Type) {
		errs = append(errs, field.NotSupported(at.path.Child("type"), s.Type, types))
	}
	if s.Default != nil && at.noDefaults != "" {
		errs = append(errs, field.Forbidden(at.path.Child("default"), "must not be set"+at.noDefaults))
	}
	for _, part := range []struct {
		name, problem string
		used          bool
	}{
		{"id", "id is not supported", s.ID != ""},
		{"additionalItems", "additionalItems is not supported", s.AdditionalItems != nil},
		{"patternProperties", "patternProperties is not supported", len(s.PatternProperties) > 0},
		{"definitions", "definitions is not supported", len(s.Definitions) > 0},
		{"dependencies", "dependencies is not supported", s.Dependencies != nil},
		{"$ref", "$ref is not supported", s.Ref != nil},
		{"type", "type cannot be set to null, use nullable as an alternative", s.Type == "null"},
		{"items", "items must be a schema object and not an array", s.Items != nil && len(s.Items.JSONSchemas) > 0},
		{"x-kubernetes-embedded-resource", "must not be used inside of resource meta", at.metadata &&
			s.XEmbeddedResource},
	} {
		if part.used {
			errs = append(errs, field.Forbidden(at.path.Child(part.name), part.problem))
		}
	}
	return errs
}

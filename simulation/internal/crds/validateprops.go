package crds

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
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

type ruleCost struct {
	path *field.Path
	cost uint64
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
func checkProps(props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural, path *field.Path, rules bool) field.ErrorList {
	c := &propsCheck{rules: rules}
	at := place{path: path, root: true, cardinality: new(uint64(1))}
	if rules {
		at.structural, at.declared = structural, model.SchemaDeclType(structural, true)
	}
	schemaErrs, ruleErrs := c.check(props, at)
	errs := append(schemaErrs, ruleErrs...)
	if c.total > schemaCostLimit {
		for _, rule := range c.expensive {
			errs = append(errs, field.Forbidden(rule.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
		}
		errs = append(errs, field.Forbidden(path, tooExpensive("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", c.total, schemaCostLimit)))
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
		schemaErrs = append(schemaErrs, field.Forbidden(at.path.Child("uniqueItems"), "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"))
	}
	if more := s.AdditionalProperties; more != nil {
		if len(s.Properties) > 0 && (!more.Allows || more.Schema != nil) {
			schemaErrs = append(schemaErrs, field.Forbidden(at.path.Child("additionalProperties"), "additionalProperties and properties are mutual exclusive"))
		}
		to := at.child(s, at.path.Child("additionalProperties"))
		if at.metadata {
			to.noDefaults = " inside additionalProperties applying to object metadata"
		}
		if at.structural != nil && at.structural.AdditionalProperties != nil {
			to.describe(at.structural.AdditionalProperties.Structural, elementType(at.declared))
		}
		descend(more.Schema, to)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
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
		descend(&property, to)
	}
	c.checkNested(s, at, descend)
	if s.Items != nil {
		to := at.child(s, at.path.Child("items"))
		if s.XListType == nil || *s.XListType != "map" {
			to.forbidOld(at.path)
		}
		if at.structural != nil {
			to.describe(at.structural.Items, elementType(at.declared))
		}
		descend(s.Items.Schema, to)
	}
	schemaErrs = append(schemaErrs, checkExtensions(s, at.path)...)
	schemaErrs = append(schemaErrs, checkListKeys(s, at.path)...)
	schemaErrs = append(schemaErrs, checkRuleTexts(s, at.path.Child("x-kubernetes-validations"))...)
	if len(s.XValidations) > 0 && len(schemaErrs) == 0 && c.rules && !at.unruled() {
		ruleErrs = append(ruleErrs, c.compileRules(s, at)...)
	}
	return schemaErrs, ruleErrs
}

// checkNested checks the schemas that only validate values. They have no rules of their own.
func (c *propsCheck) checkNested(s *apiextensions.JSONSchemaProps, at place, descend func(*apiextensions.JSONSchemaProps, place)) {
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

// describe sets the schema and its type. The type of a property whose name CEL cannot express is derived from its schema.
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
		{"x-kubernetes-embedded-resource", "must not be used inside of resource meta", at.metadata && s.XEmbeddedResource},
	} {
		if part.used {
			errs = append(errs, field.Forbidden(at.path.Child(part.name), part.problem))
		}
	}
	return errs
}

// checkExtensions checks the types of maps and lists.
func checkExtensions(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if preserve := s.XPreserveUnknownFields; preserve != nil && !*preserve {
		errs = append(errs, field.Invalid(path.Child("x-kubernetes-preserve-unknown-fields"), *preserve, "must be true or undefined"))
	}
	needsType := func(want, extension string) bool {
		problem := "must be " + want + " if " + extension + " is specified"
		switch s.Type {
		case want:
			return false
		case "":
			errs = append(errs, field.Required(path.Child("type"), problem))
		default:
			errs = append(errs, field.Invalid(path.Child("type"), s.Type, problem))
		}
		return true
	}
	oneOf := func(value, extension string, choices ...string) {
		if !slices.Contains(choices, value) {
			errs = append(errs, field.NotSupported(path.Child(extension), value, choices))
		}
	}
	if s.XMapType != nil {
		needsType("object", "x-kubernetes-map-type")
		oneOf(*s.XMapType, "x-kubernetes-map-type", "atomic", "granular")
	}
	if s.XListType == nil {
		return errs
	}
	if !needsType("array", "x-kubernetes-list-type") && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
		const problem = "must be atomic as item of a list with x-kubernetes-list-type=set"
		switch items := s.Items.Schema; {
		case items.Type == "array" && items.XListType != nil && *items.XListType != "atomic":
			errs = append(errs, field.Invalid(path.Child("items", "x-kubernetes-list-type"), items.XListType, problem))
		case items.Type == "object" && (items.XMapType == nil || *items.XMapType != "atomic"):
			errs = append(errs, field.Invalid(path.Child("items", "x-kubernetes-map-type"), items.XListType, problem))
		}
	}
	oneOf(*s.XListType, "x-kubernetes-list-type", "atomic", "set", "map")
	return errs
}

// checkListKeys checks the keys of a list that is a map, and the items of one that is a map or a set.
func checkListKeys(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	listType := ""
	if s.XListType != nil {
		listType = *s.XListType
	}
	keys := path.Child("x-kubernetes-list-map-keys")
	if len(s.XListMapKeys) > 0 && listType != "map" {
		const problem = "must be map if x-kubernetes-list-map-keys is non-empty"
		if s.XListType == nil {
			errs = append(errs, field.Required(path.Child("x-kubernetes-list-type"), problem))
		} else {
			errs = append(errs, field.Invalid(path.Child("x-kubernetes-list-type"), listType, problem))
		}
	}
	var items *apiextensions.JSONSchemaProps
	if s.Items != nil {
		items = s.Items.Schema
	}
	itemPath := path.Child("items")
	if listType == "map" {
		if len(s.XListMapKeys) == 0 {
			errs = append(errs, field.Required(keys, "must not be empty if x-kubernetes-list-type is map"))
		}
		switch {
		case s.Items == nil:
			errs = append(errs, field.Required(itemPath, "must have a schema if x-kubernetes-list-type is map"))
		case items == nil:
			errs = append(errs, field.Invalid(itemPath, s.Items, "must only have a single schema if x-kubernetes-list-type is map"))
		case items.Type != "object":
			errs = append(errs, field.Invalid(itemPath.Child("type"), items.Type, "must be object if parent array's x-kubernetes-list-type is map"))
		default:
			for i, key := range s.XListMapKeys {
				property, exists := items.Properties[key]
				switch {
				case !exists:
					errs = append(errs, field.Invalid(keys, s.XListMapKeys, "entries must all be names of item properties"))
				case property.Type == "array" || property.Type == "object":
					errs = append(errs, field.Invalid(itemPath.Child("properties").Key(key).Child("type"), items.Type, "must be a scalar type if parent array's x-kubernetes-list-type is map"))
				}
				if slices.Contains(s.XListMapKeys[:i], key) {
					errs = append(errs, field.Invalid(keys, s.XListMapKeys, "must not contain duplicate entries"))
				}
			}
		}
	}
	if items == nil || listType != "map" && listType != "set" {
		return errs
	}
	if items.Nullable {
		errs = append(errs, field.Forbidden(itemPath.Child("nullable"), "cannot be nullable when x-kubernetes-list-type is "+listType))
	}
	if listType == "set" {
		return errs
	}
	for _, key := range s.XListMapKeys {
		property, exists := items.Properties[key]
		propertyPath := itemPath.Child("properties").Key(key)
		if exists && !slices.Contains(items.Required, key) && property.Default == nil {
			errs = append(errs, field.Required(propertyPath.Child("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
		if property.Nullable {
			errs = append(errs, field.Forbidden(propertyPath.Child("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"))
		}
	}
	return errs
}

// checkRuleTexts checks the texts of CEL rules.
func checkRuleTexts(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	multiline := func(text string) bool { return strings.ContainsAny(text, "\n\r") }
	reasons := []string{
		string(apiextensions.FieldValueDuplicate), string(apiextensions.FieldValueForbidden), string(apiextensions.FieldValueInvalid), string(apiextensions.FieldValueRequired),
	}
	for i, r := range s.XValidations {
		path := path.Index(i)
		rule, message := strings.TrimSpace(r.Rule), strings.TrimSpace(r.Message)
		switch {
		case rule == "":
			errs = append(errs, field.Required(path.Child("rule"), "rule is not specified"))
		case r.Message != "" && message == "":
			errs = append(errs, field.Invalid(path.Child("message"), r.Message, "must be non-empty if specified"))
		case multiline(message):
			errs = append(errs, field.Invalid(path.Child("message"), r.Message, "must not contain line breaks"))
		case multiline(rule) && message == "":
			errs = append(errs, field.Required(path.Child("message"), "message must be specified if rule contains line breaks"))
		}
		if r.MessageExpression != "" && strings.TrimSpace(r.MessageExpression) == "" {
			errs = append(errs, field.Required(path.Child("messageExpression"), "messageExpression must be non-empty if specified"))
		}
		if r.Reason != nil && !slices.Contains(reasons, string(*r.Reason)) {
			errs = append(errs, field.NotSupported(path.Child("reason"), *r.Reason, reasons))
		}
		if r.FieldPath == "" {
			continue
		}
		if strings.TrimSpace(r.FieldPath) == "" {
			errs = append(errs, field.Invalid(path.Child("fieldPath"), r.FieldPath, "must be non-empty if specified"))
		}
		if multiline(r.FieldPath) {
			errs = append(errs, field.Invalid(path.Child("fieldPath"), r.FieldPath, "must not contain line breaks"))
		}
		if structural, err := structuralschema.NewStructural(s); err == nil {
			if _, _, err := cel.ValidFieldPath(r.FieldPath, structural); err != nil {
				errs = append(errs, field.Invalid(path.Child("fieldPath"), r.FieldPath, "must be a valid path"))
			}
		}
	}
	return errs
}

// compileRules compiles the CEL rules of a schema, and estimates their costs.
func (c *propsCheck) compileRules(s *apiextensions.JSONSchemaProps, at place) field.ErrorList {
	path := at.path.Child("x-kubernetes-validations")
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(at.structural, at.declared, celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var errs field.ErrorList
	for i, result := range results {
		path, rule := path.Index(i), s.XValidations[i]
		cost := multiply(result.MaxCost, result.MaxCardinality)
		if at.cardinality != nil {
			cost = multiply(result.MaxCost, *at.cardinality)
		}
		if cost > ruleCostLimit {
			errs = append(errs, field.Forbidden(path.Child("rule"), tooExpensive("estimated rule cost", cost, ruleCostLimit)))
		}
		c.observe(path.Child("rule"), cost)
		switch err := result.Error; {
		case err == nil:
		case err.Type == apiservercel.ErrorTypeRequired:
			errs = append(errs, field.Required(path.Child("rule"), err.Detail))
		default:
			errs = append(errs, field.Invalid(path.Child("rule"), rule, err.Detail))
		}
		if err := result.MessageExpressionError; err != nil {
			errs = append(errs, field.Invalid(path.Child("messageExpression"), rule, err.Detail))
		} else if result.MessageExpression != nil {
			if result.MessageExpressionMaxCost > ruleCostLimit {
				errs = append(errs, field.Forbidden(path.Child("messageExpression"), tooExpensive("estimated messageExpression cost", result.MessageExpressionMaxCost, ruleCostLimit)))
			}
			c.observe(path.Child("messageExpression"), result.MessageExpressionMaxCost)
		}
		switch {
		case result.UsesOldSelf && at.uncorrelatable != nil:
			errs = append(errs, field.Invalid(path.Child("rule"), rule.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", at.uncorrelatable)))
		case !result.UsesOldSelf && rule.OptionalOldSelf != nil:
			errs = append(errs, field.Invalid(path.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
		}
	}
	return errs
}

// observe adds the cost of an expression to the total.
func (c *propsCheck) observe(path *field.Path, cost uint64) {
	if c.total += cost; c.total < cost {
		c.total = math.MaxUint64
	}
	if cost < schemaCostLimit/100 {
		return
	}
	c.expensive = append(c.expensive, ruleCost{path, cost})
	slices.SortStableFunc(c.expensive, func(a, b ruleCost) int {
		if a.cost > b.cost {
			return -1
		}
		return 1
	})
	c.expensive = c.expensive[:min(4, len(c.expensive))]
}

// tooExpensive describes a cost above its limit.
func tooExpensive(what string, cost, limit uint64) string {
	factor := float64(cost) / float64(limit)
	text := fmt.Sprintf("%.1fx", factor)
	switch {
	case factor > 100:
		text = "more than 100x"
	case factor < 1.5:
		text = fmt.Sprintf("%fx", factor)
	}
	return fmt.Sprintf("%s exceeds budget by factor of %s (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)", what, text)
}

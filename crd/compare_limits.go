package crd

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// compareLimits compares the constraints on single values.
func (n node) compareLimits() {
	before, after := n.before, n.after
	reportLowered(n, "maximum", before.Maximum, after.Maximum)
	reportRaised(n, "minimum", before.Minimum, after.Minimum)
	reportLowered(n, "maxLength", before.MaxLength, after.MaxLength)
	reportRaised(n, "minLength", before.MinLength, after.MinLength)
	reportLowered(n, "maxItems", before.MaxItems, after.MaxItems)
	reportRaised(n, "minItems", before.MinItems, after.MinItems)
	reportLowered(n, "maxProperties", before.MaxProperties, after.MaxProperties)
	reportRaised(n, "minProperties", before.MinProperties, after.MinProperties)
	for _, flag := range []struct {
		name          string
		before, after bool
	}{
		{
			"exclusiveMaximum", before.ExclusiveMaximum && sameValue(before.Maximum, after.Maximum),
			after.ExclusiveMaximum && sameValue(before.Maximum, after.Maximum),
		},
		{
			"exclusiveMinimum", before.ExclusiveMinimum && sameValue(before.Minimum, after.Minimum),
			after.ExclusiveMinimum && sameValue(before.Minimum, after.Minimum),
		},
		{"uniqueItems", before.UniqueItems, after.UniqueItems},
	} {
		if !flag.before && flag.after {
			n.report(narrowing, "%s is set, and was not", flag.name)
		}
	}
	n.compareNulls()
	n.comparePattern()
	n.compareEnum()
	n.compareRequired()
	n.compareListType()
}

// compareNulls compares whether null is accepted. Where it is not, the API server rejects null items of a
// list; it drops null fields or replaces them by their default.
func (n node) compareNulls() {
	switch {
	case !n.before.Nullable || n.after.Nullable:
	case n.item:
		n.report(narrowing, "null is accepted today and would be rejected: keep nullable")
	case n.after.Default != nil:
		n.report(lossy, "null is kept today and would become the default, %s: keep nullable", n.after.Default.Raw)
	default:
		n.report(lossy, "null is kept today and would be dropped: keep nullable")
	}
}

// reportLowered reports an upper limit that is new or lower than before.
func reportLowered[V cmp.Ordered](n node, name string, before, after *V) {
	if after != nil && (before == nil || *after < *before) {
		n.report(narrowing, "%s %s", name, describeChange(before, after))
	}
}

// reportRaised reports a lower limit that is new or higher than before.
func reportRaised[V cmp.Ordered](n node, name string, before, after *V) {
	var zero V
	if _, isCount := any(zero).(int64); isCount && before == nil {
		before = &zero // lengths and counts are never negative
	}
	if after != nil && (before == nil || *after > *before) {
		n.report(narrowing, "%s %s", name, describeChange(before, after))
	}
}

func describeChange[V any](before, after *V) string {
	if before == nil {
		return fmt.Sprintf("is %v, was unlimited", *after)
	}
	return fmt.Sprintf("is %v, was %v", *after, *before)
}

func sameValue[V comparable](a, b *V) bool { return a != nil && b != nil && *a == *b }

func (n node) comparePattern() {
	before, after := n.before, n.after
	if after.Pattern != "" && after.Pattern != before.Pattern {
		n.report(narrowing, "the pattern is %q, was %q: values that matched the old pattern may not match the new one",
			after.Pattern, before.Pattern)
	}
	// These formats restrict nothing: every integer is an int64, and every number is a double.
	unrestricted := after.Type == "integer" && after.Format == "int64" || after.Type == "number" &&
		after.Format == "double"
	if after.Format != "" && after.Format != before.Format && !unrestricted {
		n.report(narrowing, "the format is %q, was %q", after.Format, before.Format)
	}
	if after.MultipleOf != nil && !sameValue(before.MultipleOf, after.MultipleOf) {
		n.report(narrowing, "only multiples of %v would be accepted", *after.MultipleOf)
	}
}

func (n node) compareEnum() {
	if len(n.after.Enum) == 0 {
		return
	}
	if len(n.before.Enum) == 0 {
		n.report(narrowing, "any value is accepted today, and only %s would be",
			strings.Join(rawValues(n.after.Enum), ", "))
		return
	}
	var removed []apiextensionsv1.JSON
	for _, value := range n.before.Enum {
		if !slices.ContainsFunc(n.after.Enum, func(allowed apiextensionsv1.JSON) bool {
			return sameJSON(value, allowed)
		}) {
			removed = append(removed, value)
		}
	}
	if len(removed) > 0 {
		n.report(narrowing, "%s would be rejected: keep the old values in the enum, and handle them as aliases of "+
			"the new ones", strings.Join(rawValues(removed), ", "))
	}
}

// sameJSON compares values and not their spelling.
func sameJSON(a, b apiextensionsv1.JSON) bool { return bytes.Equal(a.Raw, b.Raw) || sameContent(a, b) }

func rawValues(values []apiextensionsv1.JSON) []string {
	var texts []string
	for _, value := range values {
		texts = append(texts, string(value.Raw))
	}
	return texts
}

// compareRequired compares the required fields. A field with a default is never missing.
func (n node) compareRequired() {
	for _, name := range n.after.Required {
		before, after := n.before.Properties[name], n.after.Properties[name]
		wasRequired := slices.Contains(n.before.Required, name)
		switch {
		case after.Default != nil:
		case !wasRequired:
			n.child("."+name, nil, nil).report(narrowing, "the field becomes required, and objects without it could "+
				"not be written: give it a default")
		case before.Default != nil:
			n.child("."+name, nil, nil).report(narrowing, "the required field loses its default, and objects that "+
				"rely on the default could not be written: keep the default")
		}
	}
}

// compareListType compares the keys that identify the items of a list, and whether the parts of a value
// may have different field owners.
func (n node) compareListType() {
	before, after := cmp.Or(valueOf(n.before.XListType), "atomic"), cmp.Or(valueOf(n.after.XListType), "atomic")
	const becomesAtomic = "%s is atomic, was %s: when several programs apply parts of the value, the last one would " +
		"own all of it: keep the old type"
	switch {
	case before == after && after == "atomic":
	case after == "atomic":
		n.report(narrowing, becomesAtomic, "x-kubernetes-list-type", before)
	case before != after:
		n.report(narrowing, "lists with two equal items would be rejected: x-kubernetes-list-type is %s, was %s", after,
			before)
	case !slices.Equal(slices.Sorted(slices.Values(n.before.XListMapKeys)),
		slices.Sorted(slices.Values(n.after.XListMapKeys))):
		n.report(narrowing, "other fields identify the items: x-kubernetes-list-map-keys are %q, were %q",
			n.after.XListMapKeys, n.before.XListMapKeys)
	}
	if valueOf(n.before.XMapType) != "atomic" && valueOf(n.after.XMapType) == "atomic" &&
		typeOf(n.before) == typeOf(n.after) {
		n.report(narrowing, becomesAtomic, "x-kubernetes-map-type", "granular")
	}
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// compareRules compares CEL rules and logical schemas. Compare does not evaluate them: each one that is
// new or different counts as a problem.
func (n node) compareRules() {
	for _, rule := range n.after.XValidations {
		existed := slices.ContainsFunc(n.before.XValidations, func(old apiextensionsv1.ValidationRule) bool {
			return old.Rule == rule.Rule && sameOptional(old.OptionalOldSelf, rule.OptionalOldSelf)
		})
		if !existed {
			n.report(narrowing, "the rule %q is new: objects that violate it could not be written", rule.Rule)
		}
	}
	n.before, n.after = withoutImpliedTypes(n.before), withoutImpliedTypes(n.after)
	for _, part := range []struct {
		name          string
		before, after any
	}{
		{"allOf", n.before.AllOf, n.after.AllOf},
		{"anyOf", n.before.AnyOf, n.after.AnyOf},
		{"oneOf", n.before.OneOf, n.after.OneOf},
		{"not", n.before.Not, n.after.Not},
	} {
		if !reflect.ValueOf(part.after).IsZero() && !sameContent(part.before, part.after) {
			n.report(narrowing, "%s changes and cannot be compared: values that are accepted today may be rejected",
				part.name)
		}
	}
}

func sameOptional(a, b *bool) bool { return (a != nil && *a) == (b != nil && *b) }

// withoutImpliedTypes returns the schema without the list of the two types of int-or-string: the list is
// optional and means nothing. It never changes its argument.
func withoutImpliedTypes(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if !schema.XIntOrString {
		return schema
	}
	types := []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}
	without := *schema
	if sameContent(without.AnyOf, types) {
		without.AnyOf = nil
	}
	if all := without.AllOf; len(all) > 0 && sameContent(all[0], apiextensionsv1.JSONSchemaProps{AnyOf: types}) {
		without.AllOf = append([]apiextensionsv1.JSONSchemaProps(nil), all[1:]...) // nil if no other schema is left
	}
	return &without
}

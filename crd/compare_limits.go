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

// limits compares what values have to be like, one by one.
func (n node) limits() {
	before, after := n.before, n.after
	lowered(n, "maximum", before.Maximum, after.Maximum)
	raised(n, "minimum", before.Minimum, after.Minimum)
	lowered(n, "maxLength", before.MaxLength, after.MaxLength)
	raised(n, "minLength", before.MinLength, after.MinLength)
	lowered(n, "maxItems", before.MaxItems, after.MaxItems)
	raised(n, "minItems", before.MinItems, after.MinItems)
	lowered(n, "maxProperties", before.MaxProperties, after.MaxProperties)
	raised(n, "minProperties", before.MinProperties, after.MinProperties)
	for _, flag := range []struct {
		name          string
		before, after bool
	}{
		{"exclusiveMaximum", before.ExclusiveMaximum && sameValue(before.Maximum, after.Maximum), after.ExclusiveMaximum && sameValue(before.Maximum, after.Maximum)},
		{"exclusiveMinimum", before.ExclusiveMinimum && sameValue(before.Minimum, after.Minimum), after.ExclusiveMinimum && sameValue(before.Minimum, after.Minimum)},
		{"uniqueItems", before.UniqueItems, after.UniqueItems},
	} {
		if !flag.before && flag.after {
			n.report(Narrowing, "%s is turned on", flag.name)
		}
	}
	n.nulls()
	n.pattern()
	n.enum()
	n.required()
	n.listType()
}

// nulls compares whether null is a value: that of a field, when it is none, is dropped, or becomes
// the default.
func (n node) nulls() {
	switch {
	case !n.before.Nullable || n.after.Nullable:
	case n.item:
		n.report(Narrowing, "null is accepted now, and would be refused: keep nullable")
	case n.after.Default != nil:
		n.report(Lossy, "null is kept now, and would become the default, %s: keep nullable", n.after.Default.Raw)
	default:
		n.report(Lossy, "null is kept now, and would be dropped: keep nullable")
	}
}

// lowered reports an upper limit that is new, or lower than it was.
func lowered[V cmp.Ordered](n node, name string, before, after *V) {
	if after != nil && (before == nil || *after < *before) {
		n.report(Narrowing, "%s %s", name, change(before, after))
	}
}

// raised reports a lower limit that is new, or higher than it was.
func raised[V cmp.Ordered](n node, name string, before, after *V) {
	var zero V
	if _, isCount := any(zero).(int64); isCount && before == nil {
		before = &zero // nothing is shorter than that
	}
	if after != nil && (before == nil || *after > *before) {
		n.report(Narrowing, "%s %s", name, change(before, after))
	}
}

func change[V any](before, after *V) string {
	if before == nil {
		return fmt.Sprintf("is %v, and was unlimited", *after)
	}
	return fmt.Sprintf("is %v, and was %v", *after, *before)
}

func sameValue[V comparable](a, b *V) bool { return a != nil && b != nil && *a == *b }

func (n node) pattern() {
	before, after := n.before, n.after
	if after.Pattern != "" && after.Pattern != before.Pattern {
		n.report(Narrowing, "the pattern is %q, and was %q: what matched the old one may not match it", after.Pattern, before.Pattern)
	}
	// Every integer is an int64, and every number a double.
	every := after.Type == "integer" && after.Format == "int64" || after.Type == "number" && after.Format == "double"
	if after.Format != "" && after.Format != before.Format && !every {
		n.report(Narrowing, "the format is %q, and was %q", after.Format, before.Format)
	}
	if after.MultipleOf != nil && !sameValue(before.MultipleOf, after.MultipleOf) {
		n.report(Narrowing, "it has to be a multiple of %v", *after.MultipleOf)
	}
}

func (n node) enum() {
	if len(n.after.Enum) == 0 {
		return
	}
	if len(n.before.Enum) == 0 {
		n.report(Narrowing, "only %s would be accepted, and any value is now", strings.Join(texts(n.after.Enum), ", "))
		return
	}
	var gone []apiextensionsv1.JSON
	for _, value := range n.before.Enum {
		if !slices.ContainsFunc(n.after.Enum, func(allowed apiextensionsv1.JSON) bool { return sameJSON(value, allowed) }) {
			gone = append(gone, value)
		}
	}
	if len(gone) > 0 {
		n.report(Narrowing, "%s would be refused: keep old values in the enum, and let the program treat them as new ones", strings.Join(texts(gone), ", "))
	}
}

// sameJSON compares values: JSON has several ways to write one.
func sameJSON(a, b apiextensionsv1.JSON) bool { return bytes.Equal(a.Raw, b.Raw) || sameContent(a, b) }

func texts(values []apiextensionsv1.JSON) []string {
	var texts []string
	for _, value := range values {
		texts = append(texts, string(value.Raw))
	}
	return texts
}

// required compares which fields have to be there. Those with a default always are.
func (n node) required() {
	for _, name := range n.after.Required {
		before, after := n.before.Properties[name], n.after.Properties[name]
		was := slices.Contains(n.before.Required, name)
		switch {
		case after.Default != nil:
		case !was:
			n.at("."+name, nil, nil).report(Narrowing, "it is required, and objects that lack it could not be written: give it a default")
		case before.Default != nil:
			n.at("."+name, nil, nil).report(Narrowing, "it is required and has lost its default, and objects that rely on that could not be written: keep the default")
		}
	}
}

// listType compares what tells the items of a list apart, and whether parts of a value have owners
// of their own.
func (n node) listType() {
	before, after := cmp.Or(valueOf(n.before.XListType), "atomic"), cmp.Or(valueOf(n.after.XListType), "atomic")
	const shared = "%s is atomic, and was %s: of several programs that apply parts of it, one would take it from the others: keep it"
	switch {
	case before == after && after == "atomic":
	case after == "atomic":
		n.report(Narrowing, shared, "x-kubernetes-list-type", before)
	case before != after:
		n.report(Narrowing, "lists with two equal items would be refused: x-kubernetes-list-type is %s, and was %s", after, before)
	case !slices.Equal(slices.Sorted(slices.Values(n.before.XListMapKeys)), slices.Sorted(slices.Values(n.after.XListMapKeys))):
		n.report(Narrowing, "other fields tell its items apart: x-kubernetes-list-map-keys are %q, and were %q", n.after.XListMapKeys, n.before.XListMapKeys)
	}
	if valueOf(n.before.XMapType) != "atomic" && valueOf(n.after.XMapType) == "atomic" && typeOf(n.before) == typeOf(n.after) {
		n.report(Narrowing, shared, "x-kubernetes-map-type", "granular")
	}
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// rules compares conditions that cannot be read, only be found to be new.
func (n node) rules() {
	for _, rule := range n.after.XValidations {
		had := slices.ContainsFunc(n.before.XValidations, func(old apiextensionsv1.ValidationRule) bool {
			return old.Rule == rule.Rule && sameOptional(old.OptionalOldSelf, rule.OptionalOldSelf)
		})
		if !had {
			n.report(Narrowing, "the rule %q is new: objects that break it could not be written", rule.Rule)
		}
	}
	n.before, n.after = withoutTypes(n.before), withoutTypes(n.after)
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
			n.report(Narrowing, "%s has changed, which cannot be compared: what it accepted may be refused", part.name)
		}
	}
}

func sameOptional(a, b *bool) bool { return (a != nil && *a) == (b != nil && *b) }

// withoutTypes returns a schema without the two types of int-or-string, which may be said, or not.
func withoutTypes(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if !schema.XIntOrString {
		return schema
	}
	types := []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}
	without := *schema
	if sameContent(without.AnyOf, types) {
		without.AnyOf = nil
	}
	if all := without.AllOf; len(all) > 0 && sameContent(all[0], apiextensionsv1.JSONSchemaProps{AnyOf: types}) {
		without.AllOf = append([]apiextensionsv1.JSONSchemaProps(nil), all[1:]...) // nil when there is no more
	}
	return &without
}

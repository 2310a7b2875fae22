package crd

import (
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// node is one place in the schemas of before and after.
type node struct {
	*comparison
	root          string // "v1: "
	path          string // "spec.ports[*].name"; "" is the object
	before, after *apiextensionsv1.JSONSchemaProps
}

// schemas compares the schemas of objects.
func (c *comparison) schemas(root string, before, after *apiextensionsv1.JSONSchemaProps) {
	node{comparison: c, root: root, before: before, after: after}.compare()
}

func (n node) report(severity Severity, format string, args ...any) {
	path := n.path
	if path == "" {
		path = "the object"
	}
	n.comparison.report(severity, n.root+path, format, args...)
}

// at returns the node below this one.
func (n node) at(step string, before, after *apiextensionsv1.JSONSchemaProps) node {
	n.path, n.before, n.after = strings.TrimPrefix(n.path+step, "."), before, after
	return n
}

func (n node) compare() {
	if !n.types() {
		return // nothing below can be compared
	}
	n.unknownFields()
	n.properties()
	n.values()
	n.items()
	n.limits()
	n.rules()
}

// types compares types, and reports whether the rest can be compared.
func (n node) types() bool {
	before, after := typeOf(n.before), typeOf(n.after)
	switch {
	case before == after, after == anyType:
		return true
	case after == intOrString && (before == "integer" || before == "string"), before == "integer" && after == "number":
		return true
	case before == anyType:
		n.report(Narrowing, "anything is accepted now, and only %s would be", after)
		return true // what is an object may have more than the new schema names
	case before == "number" && after == "integer":
		n.report(Narrowing, "fractions would be refused: %s becomes %s", before, after)
		return true
	}
	n.report(Lossy, "the type changes from %s to %s, and what is stored has the old one: "+
		"add a property of another name, or a version with a conversion webhook", before, after)
	return false
}

const (
	anyType     = "any type"
	intOrString = "int-or-string"
)

func typeOf(schema *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case schema.XIntOrString:
		return intOrString
	case schema.Type == "":
		return anyType
	}
	return schema.Type
}

// unknownFields compares what is kept of what no schema names.
func (n node) unknownFields() {
	if preserves(n.before) && !preserves(n.after) && n.after.AdditionalProperties == nil && mayBeObject(n.after) {
		n.report(Lossy, "fields that the schema does not name are kept now, and would be dropped: "+
			"keep x-kubernetes-preserve-unknown-fields, or name every field that objects have")
	}
	switch {
	case n.before.XEmbeddedResource && !n.after.XEmbeddedResource && !preserves(n.after):
		n.report(Lossy, "it is no embedded object any longer, and its apiVersion, kind and metadata would be dropped: keep x-kubernetes-embedded-resource")
	case !n.before.XEmbeddedResource && n.after.XEmbeddedResource:
		n.report(Narrowing, "it has to be an embedded object, with apiVersion, kind and metadata")
	}
}

func preserves(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

func mayBeObject(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.Type == "object" || schema.Type == "" && !schema.XIntOrString
}

// properties compares the fields of an object.
func (n node) properties() {
	for _, name := range slices.Sorted(maps.Keys(n.before.Properties)) {
		if n.path == "" && isImplied(name) {
			continue
		}
		before := n.before.Properties[name]
		if after, ok := n.afterOf(name); ok {
			n.at("."+name, &before, after).compare()
		} else if !preserves(n.after) {
			n.at("."+name, nil, nil).report(Lossy, "the property is removed, and what objects have there would be dropped: "+
				"keep it, and mark it as deprecated in its description")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.after.Properties)) {
		after := n.after.Properties[name]
		if _, ok := n.before.Properties[name]; ok || n.path == "" && isImplied(name) {
			continue
		}
		// Under that name there may already be something.
		if before := valuesOf(n.before); before != nil {
			n.at("."+name, before, &after).compare()
		} else if preserves(n.before) && preserves(n.after) { // otherwise it is among the unknown fields
			n.at("."+name, &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, &after).compare()
		}
	}
}

// isImplied reports whether a field of the object itself is known whatever the schema says.
func isImplied(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" }

// afterOf returns the schema that applies to a field that there was.
func (n node) afterOf(name string) (*apiextensionsv1.JSONSchemaProps, bool) {
	if after, ok := n.after.Properties[name]; ok {
		return &after, true
	}
	after := valuesOf(n.after)
	return after, after != nil
}

// valuesOf returns the schema of a map's values, or nil when it is no map.
func valuesOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	switch additional := schema.AdditionalProperties; {
	case additional == nil:
		return nil
	case additional.Schema != nil:
		return additional.Schema
	case additional.Allows:
		return &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
	}
	return nil
}

// values compares the values of a map.
func (n node) values() {
	before, after := valuesOf(n.before), valuesOf(n.after)
	switch {
	case before != nil && after != nil:
		n.at("[*]", before, after).compare()
	case before != nil && !preserves(n.after) && typeOf(n.after) == "object":
		n.report(Lossy, "it is no map any longer, and entries that the schema does not name would be dropped: keep additionalProperties")
	case before == nil && after != nil && preserves(n.before):
		n.at("[*]", &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, after).compare()
	}
}

// items compares the items of a list.
func (n node) items() {
	before, after := itemsOf(n.before), itemsOf(n.after)
	if after == nil {
		return // the API server refuses lists without
	}
	if before == nil {
		if typeOf(n.before) != anyType {
			return
		}
		before = &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
	}
	n.at("[*]", before, after).compare()
}

func itemsOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

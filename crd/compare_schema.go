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
	item          bool   // it is an item of a list
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
	n.path, n.item, n.before, n.after = strings.TrimPrefix(n.path+step, "."), false, before, after
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
	case before == anyType && preserves(n.before) && !n.keepsUnknown() && (after != "object" || n.after.AdditionalProperties != nil):
		what := "objects"
		if after == "object" {
			what = "objects in lists" // the others are compared
		}
		n.report(Lossy, "anything is accepted now, and only %s would be; %s in its place would lose all their fields: "+
			"add a property of another name", after, what)
		return true // items and values are compared
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
	if preserves(n.before) && !n.keepsUnknown() && n.after.AdditionalProperties == nil && mayBeObject(n.after) {
		n.report(Lossy, "fields that the schema does not name are kept now, and would be dropped: "+
			"keep x-kubernetes-preserve-unknown-fields, or name every field that objects have")
	}
	_, hasMetadata := n.before.Properties["metadata"]
	switch {
	case n.before.XEmbeddedResource && !n.after.XEmbeddedResource && !n.keepsUnknown():
		n.report(Lossy, "it is no embedded object any longer, and its apiVersion, kind and metadata would be dropped: keep x-kubernetes-embedded-resource")
	case n.before.XEmbeddedResource || !n.after.XEmbeddedResource:
	case hasMetadata || preserves(n.before) || valuesOf(n.before) != nil:
		n.report(Lossy, "it becomes an embedded object, and what its metadata has that is none of Kubernetes' would be dropped: "+
			"leave out x-kubernetes-embedded-resource")
	default:
		n.report(Narrowing, "it has to be an embedded object, with apiVersion, kind and metadata")
	}
}

// keepsUnknown reports whether fields that the schema of after does not name are kept.
func (n node) keepsUnknown() bool {
	return n.comparison.after.Spec.PreserveUnknownFields || preserves(n.after)
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
		if n.isImplied(name) {
			continue
		}
		before := n.before.Properties[name]
		if after, ok := n.afterOf(name); ok {
			n.at("."+name, &before, after).compare()
		} else if !n.keepsUnknown() {
			n.at("."+name, nil, nil).report(Lossy, "the property is removed, and what objects have there would be dropped: "+
				"keep it, and mark it as deprecated in its description")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.after.Properties)) {
		after := n.after.Properties[name]
		if _, ok := n.before.Properties[name]; ok || n.isImplied(name) {
			continue
		}
		// Under that name there may already be something.
		if before := valuesOf(n.before); before != nil {
			n.at("."+name, before, &after).compare()
		} else if preserves(n.before) && n.keepsUnknown() { // otherwise it is among the unknown fields
			n.at("."+name, &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, &after).compare()
		}
	}
	n.implied()
}

// isImplied reports whether the field of an object is known whatever the schema says.
func (n node) isImplied(name string) bool {
	return (n.path == "" || n.before.XEmbeddedResource && n.after.XEmbeddedResource) && (name == "apiVersion" || name == "kind" || name == "metadata")
}

// implied compares what a schema asks of the fields that are known whatever it says: of the name,
// usually.
func (n node) implied() {
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		before, after := n.before.Properties[name], n.after.Properties[name]
		if !n.isImplied(name) {
			continue
		}
		if name != "metadata" {
			n.at("."+name, &before, &after).limits()
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(after.Properties)) {
			was, is := before.Properties[field], after.Properties[field]
			below := n.at(".metadata."+field, &was, &is)
			below.limits()
			below.rules()
		}
	}
}

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
		return &apiextensionsv1.JSONSchemaProps{} // anything, of which objects lose all fields
	}
	return nil
}

// values compares the values of a map.
func (n node) values() {
	before, after := valuesOf(n.before), valuesOf(n.after)
	switch {
	case before != nil && after != nil:
		n.at("[*]", before, after).compare()
	case before != nil && !n.keepsUnknown() && mayBeObject(n.after):
		n.report(Lossy, "it is no map any longer, and entries that the schema does not name would be dropped: keep additionalProperties")
	case before == nil && after != nil && preserves(n.before):
		n.at("[*]", &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, after).compare()
	}
}

// items compares the items of a list.
func (n node) items() {
	if n.before.Items == nil && n.after.Items == nil {
		return
	}
	before, after := itemsOf(n.before), itemsOf(n.after)
	if before == nil || after == nil { // one of them is no list
		return
	}
	below := n.at("[*]", before, after)
	below.item = true
	below.compare()
}

// itemsOf returns the schema of a list's items, or nil when it can be no list. Items inherit from
// the list that unknown fields are kept; properties and the values of maps do not.
func itemsOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	items := &apiextensionsv1.JSONSchemaProps{}
	switch {
	case schema.Items != nil && schema.Items.Schema != nil:
		items = schema.Items.Schema
	case typeOf(schema) != anyType:
		return nil
	}
	if preserves(schema) && !preserves(items) {
		items = items.DeepCopy()
		items.XPreserveUnknownFields = new(true)
	}
	return items
}

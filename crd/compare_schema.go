package crd

import (
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// node is one place in the schemas of before and after.
//
// Invariant: both schemas describe the values at the same path, so each problem names one path.
type node struct {
	*comparison
	root          string // the version or versions: "v1: ", "v1 to v2: "
	path          string // "spec.ports[*].name"; "" is the object itself
	item          bool   // the node is the item of a list
	before, after *apiextensionsv1.JSONSchemaProps
}

// compareSchemas compares two schemas of the whole object.
func (c *comparison) compareSchemas(root string, before, after *apiextensionsv1.JSONSchemaProps) {
	node{comparison: c, root: root, before: before, after: after}.compare()
}

func (n node) report(severity severity, format string, args ...any) {
	path := n.path
	if path == "" {
		path = "the object"
	}
	n.comparison.report(severity, n.root+path, format, args...)
}

// child returns the node at path+step.
func (n node) child(step string, before, after *apiextensionsv1.JSONSchemaProps) node {
	n.path, n.item, n.before, n.after = strings.TrimPrefix(n.path+step, "."), false, before, after
	return n
}

func (n node) compare() {
	if !n.compareTypes() {
		return // the types have nothing in common
	}
	n.compareUnknownFields()
	n.compareProperties()
	n.compareValues()
	n.compareItems()
	n.compareLimits()
	n.compareRules()
}

// compareTypes compares types. It reports whether the other parts of the schemas can be compared.
func (n node) compareTypes() bool {
	before, after := typeOf(n.before), typeOf(n.after)
	switch {
	case before == after, after == anyType:
		return true
	case after == intOrString && (before == "integer" || before == "string"), before == "integer" && after == "number":
		return true
	case before == anyType && preservesUnknown(n.before) && !n.afterPreservesUnknown() &&
		(after != "object" || n.after.AdditionalProperties != nil):
		affected := "objects"
		if after == "object" {
			affected = "objects in lists" // compareProperties covers other objects
		}
		n.report(lossy, "any value is accepted today, and only %s would be; %s stored here would lose all "+
			"their fields: "+
			"add a property with another name", after, affected)
		return true // items and map values still have to be compared
	case before == anyType:
		n.report(narrowing, "any value is accepted today, and only %s would be", after)
		return true // stored objects may have fields that the new schema lacks
	case before == "number" && after == "integer":
		n.report(narrowing, "fractions would be rejected: %s becomes %s", before, after)
		return true
	}
	n.report(lossy, "the type changes from %s to %s, and stored values have the old type: "+
		"add a property with another name, or a version with a conversion webhook", before, after)
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

// compareUnknownFields compares which fields the API server keeps although the schema does not have them.
func (n node) compareUnknownFields() {
	if preservesUnknown(n.before) && !n.afterPreservesUnknown() && n.after.AdditionalProperties == nil &&
		mayBeObject(n.after) {
		n.report(lossy, "fields that the schema does not have are kept today and would be dropped: "+
			"keep x-kubernetes-preserve-unknown-fields, or add every field that objects use")
	}
	_, hasMetadata := n.before.Properties["metadata"]
	switch {
	case n.before.XEmbeddedResource && !n.after.XEmbeddedResource && !n.afterPreservesUnknown():
		n.report(lossy, "apiVersion, kind and metadata of the embedded object would be dropped: keep "+
			"x-kubernetes-embedded-resource")
	case n.before.XEmbeddedResource || !n.after.XEmbeddedResource:
	case hasMetadata || preservesUnknown(n.before) || mapValues(n.before) != nil:
		n.report(lossy, "the value becomes an embedded object, and fields of its metadata that Kubernetes does not "+
			"define would be dropped: "+
			"leave out x-kubernetes-embedded-resource")
	default:
		n.report(narrowing, "only embedded objects with apiVersion, kind and metadata would be accepted")
	}
}

// afterPreservesUnknown reports whether the API server would keep fields that the schema of after lacks.
func (n node) afterPreservesUnknown() bool {
	return n.comparison.after.Spec.PreserveUnknownFields || preservesUnknown(n.after)
}

func preservesUnknown(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

func mayBeObject(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.Type == "object" || schema.Type == "" && !schema.XIntOrString
}

// compareProperties compares the fields of an object.
func (n node) compareProperties() {
	for _, name := range slices.Sorted(maps.Keys(n.before.Properties)) {
		if n.isBuiltin(name) {
			continue
		}
		before := n.before.Properties[name]
		if after, ok := n.schemaAfter(name); ok {
			n.child("."+name, &before, after).compare()
		} else if !n.afterPreservesUnknown() {
			n.child("."+name, nil, nil).report(lossy, "the property is removed, and the values that objects have "+
				"would be dropped: "+
				"keep it, and mark it as deprecated in its description")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.after.Properties)) {
		after := n.after.Properties[name]
		if _, ok := n.before.Properties[name]; ok || n.isBuiltin(name) {
			continue
		}
		// A map or an object that keeps unknown fields may already have a value with this name.
		if before := mapValues(n.before); before != nil {
			n.child("."+name, before, &after).compare()
		} else if preservesUnknown(n.before) && n.afterPreservesUnknown() {
			// otherwise compareUnknownFields reports the loss
			n.child("."+name, &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, &after).compare()
		}
	}
	n.compareBuiltin()
}

// isBuiltin reports whether the API server defines the field itself, whether or not the schema has it.
func (n node) isBuiltin(name string) bool {
	return (n.path == "" || n.before.XEmbeddedResource && n.after.XEmbeddedResource) &&
		(name == "apiVersion" || name == "kind" || name == "metadata")
}

// compareBuiltin compares the limits that a schema puts on built-in fields, usually on metadata.name.
func (n node) compareBuiltin() {
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		before, after := n.before.Properties[name], n.after.Properties[name]
		if !n.isBuiltin(name) {
			continue
		}
		if name != "metadata" {
			n.child("."+name, &before, &after).compareLimits()
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(after.Properties)) {
			fieldBefore, fieldAfter := before.Properties[field], after.Properties[field]
			child := n.child(".metadata."+field, &fieldBefore, &fieldAfter)
			child.compareLimits()
			child.compareRules()
		}
	}
}

// schemaAfter returns the new schema of an existing field: its property, or the schema of map values.
func (n node) schemaAfter(name string) (*apiextensionsv1.JSONSchemaProps, bool) {
	if after, ok := n.after.Properties[name]; ok {
		return &after, true
	}
	after := mapValues(n.after)
	return after, after != nil
}

// mapValues returns the schema of a map's values, or nil if the schema is not a map.
func mapValues(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	switch additional := schema.AdditionalProperties; {
	case additional == nil:
		return nil
	case additional.Schema != nil:
		return additional.Schema
	case additional.Allows:
		return &apiextensionsv1.JSONSchemaProps{} // any value, but objects lose all their fields
	}
	return nil
}

// compareValues compares the values of a map.
func (n node) compareValues() {
	before, after := mapValues(n.before), mapValues(n.after)
	switch {
	case before != nil && after != nil:
		n.child("[*]", before, after).compare()
	case before != nil && !n.afterPreservesUnknown() && mayBeObject(n.after):
		n.report(lossy, "the map becomes an object, and entries that are not among its properties would be dropped: "+
			"keep additionalProperties")
	case before == nil && after != nil && preservesUnknown(n.before):
		n.child("[*]", &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, after).compare()
	}
}

// compareItems compares the items of a list.
func (n node) compareItems() {
	if n.before.Items == nil && n.after.Items == nil {
		return
	}
	before, after := listItems(n.before), listItems(n.after)
	if before == nil || after == nil { // compareTypes has reported the change of type
		return
	}
	child := n.child("[*]", before, after)
	child.item = true
	child.compare()
}

// listItems returns the schema of a list's items, or nil if the type excludes lists. Items inherit
// x-kubernetes-preserve-unknown-fields from their list; properties and the values of maps do not.
func listItems(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	items := &apiextensionsv1.JSONSchemaProps{}
	switch {
	case schema.Items != nil && schema.Items.Schema != nil:
		items = schema.Items.Schema
	case typeOf(schema) != anyType:
		return nil
	}
	if preservesUnknown(schema) && !preservesUnknown(items) {
		items = items.DeepCopy()
		items.XPreserveUnknownFields = new(true)
	}
	return items
}

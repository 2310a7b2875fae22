package crd

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Severity is how bad a change of a definition is.
type Severity string

// The severities, the worst first.
const (
	// Impossible: the API server refuses it. No option helps.
	Impossible Severity = "impossible"
	// Lossy: something that objects may have would be dropped, at their next write, or could not
	// be read any longer.
	Lossy Severity = "lossy"
	// Narrowing: something would be refused that was accepted so far. Objects that have it can
	// still be read. Whether they can be written, depends: Kubernetes takes invalid values as
	// long as a write does not touch them (ratcheting, since 1.30), where it can tell, which
	// it cannot for what is missing, for instance.
	Narrowing Severity = "narrowing"
)

// Problem is a change of a definition that may harm the objects that there are, or those who use
// them.
type Problem struct {
	Severity Severity
	// Path says what changes: "spec.scope" in the definition itself, "v1: spec.ports[*].name" in
	// the schema of a version; [*] stands for each item of a list, and each value of a map.
	Path string
	// Message says what is wrong, and what to do.
	Message string
}

// String returns the problem as a line.
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Severity, p.Path, p.Message) }

// Compare returns what is problematic about changing the definition before into after, the
// worst first. It makes no request, and changes neither.
//
// before should have come from a cluster: its status says in which versions objects are stored.
// What of after is not said (a conversion) counts as its default.
//
// Not every harm can be seen in a definition: a default that changes, or a rule that means
// something else to the program, looks right.
func Compare(before, after *apiextensionsv1.CustomResourceDefinition) []Problem {
	c := comparison{before: before, after: after}
	c.identity()
	if before.Spec.PreserveUnknownFields && !after.Spec.PreserveUnknownFields {
		c.report(Lossy, "spec.preserveUnknownFields", "what the schemas do not name is kept now, and would be dropped: "+
			"name everything in the schemas, or set x-kubernetes-preserve-unknown-fields where that cannot be")
	}
	for i := range before.Spec.Versions {
		c.version(&before.Spec.Versions[i])
	}
	c.storage()
	order := []Severity{Impossible, Lossy, Narrowing}
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	return c.problems
}

type comparison struct {
	before, after *apiextensionsv1.CustomResourceDefinition
	problems      []Problem
}

// report adds a problem, once.
func (c *comparison) report(severity Severity, path, format string, args ...any) {
	p := Problem{Severity: severity, Path: path, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.problems, p) {
		c.problems = append(c.problems, p)
	}
}

// identity compares what says which kind it is.
func (c *comparison) identity() {
	before, after := c.before.Spec, c.after.Spec
	// Before it is established nothing can be stored, and the API server lets these change.
	unused := len(c.before.Status.Conditions) > 0 && !isTrue(c.before, apiextensionsv1.Established)
	for _, field := range []struct {
		path, before, after string
		changeable          bool
	}{
		{"spec.group", before.Group, after.Group, false},
		{"spec.names.plural", before.Names.Plural, after.Names.Plural, false},
		{"spec.names.kind", before.Names.Kind, after.Names.Kind, unused},
		{"spec.scope", string(before.Scope), string(after.Scope), unused},
	} {
		if field.before != field.after && !field.changeable {
			c.report(Impossible, field.path, "%q becomes %q: it is part of where objects are stored: "+
				"remove the definition with all its objects first, or define a new kind and copy them", field.before, field.after)
		}
	}
}

// version compares a version that there is with what becomes of it.
func (c *comparison) version(before *apiextensionsv1.CustomResourceDefinitionVersion) {
	after := versionOf(c.after, before.Name)
	stored := slices.Contains(storedVersions(c.before), before.Name)
	path := "spec.versions[" + before.Name + "]"
	switch {
	case after == nil && stored:
		c.report(Impossible, path, "objects may be stored in it (status.storedVersions): keep it, with served: false; "+
			"once every object has been written again, take it out of status.storedVersions")
		return
	case before.Served && (after == nil || !after.Served) && !before.Deprecated:
		c.report(Narrowing, path, "it is served no longer, and requests for it get \"not found\": "+
			"mark it as deprecated in one release, and end it in a later one")
	}
	if after == nil {
		return
	}
	c.subresources(path, before, after)
	// What nobody reads or writes through a schema cannot be harmed by it.
	if !stored && (!before.Served || !after.Served) {
		return
	}
	c.schemas(before.Name+": ", schemaOf(before), schemaOf(after))
}

// subresources compares what else a version offers.
func (c *comparison) subresources(path string, before, after *apiextensionsv1.CustomResourceDefinitionVersion) {
	had, has := subresourcesOf(before), subresourcesOf(after)
	for _, name := range had {
		if !slices.Contains(has, name) && before.Served && after.Served {
			c.report(Narrowing, path+".subresources."+name, "requests for %s get \"not found\": keep it as long as the version is served%s", name, alsoOf(name))
		}
	}
	for _, field := range before.SelectableFields {
		if !slices.Contains(after.SelectableFields, field) && before.Served && after.Served {
			c.report(Narrowing, path+".selectableFields", "lists and watches with a field selector of %s are refused: keep it as long as the version is served", field.JSONPath)
		}
	}
}

// alsoOf says what else becomes of objects without the subresource.
func alsoOf(subresource string) string {
	if subresource == "status" {
		return "; whoever replaces an object replaces its status too"
	}
	return ""
}

func subresourcesOf(version *apiextensionsv1.CustomResourceDefinitionVersion) []string {
	var names []string
	if sub := version.Subresources; sub != nil {
		if sub.Status != nil {
			names = append(names, "status")
		}
		if sub.Scale != nil {
			names = append(names, "scale")
		}
	}
	return names
}

// storage compares the schemas of two versions where objects go from one to the other as they
// are.
func (c *comparison) storage() {
	from, to := storageVersion(c.before), storageVersion(c.after)
	before, after := versionOf(c.before, from), versionOf(c.after, to)
	if converts(c.after) || before == nil || after == nil {
		return
	}
	if converts(c.before) && len(c.before.Spec.Versions) > 1 && len(versionsBetween(c.before, c.after)) > 1 {
		c.report(Lossy, "spec.conversion", "versions %s are converted by a webhook now, and objects in one would be read as another "+
			"as they are: keep the webhook as long as objects are stored in more than one version", strings.Join(versionNames(c.before), ", "))
	}
	if from != to {
		c.schemas(from+" to "+to+": ", schemaOf(before), schemaOf(after))
	}
	for i := range c.after.Spec.Versions {
		if version := &c.after.Spec.Versions[i]; version.Served && !version.Storage {
			c.read(before, version)
			c.written(version, after)
		}
	}
}

// read compares the schema in which objects are stored with that of a version that is served for
// the first time. Who reads an object in it and writes it drops what it does not name. What it does
// not accept harms nobody yet.
func (c *comparison) read(stored, version *apiextensionsv1.CustomResourceDefinitionVersion) {
	if before := versionOf(c.before, version.Name); before == nil || !before.Served {
		c.problems = append(c.problems, c.losses(stored, version)...)
	}
}

// written compares what is new in a version that is served with the schema in which objects are
// stored: what that does not name is dropped as soon as it is written.
func (c *comparison) written(version, stored *apiextensionsv1.CustomResourceDefinitionVersion) {
	var known []Problem
	if before := versionOf(c.before, version.Name); before != nil && before.Served {
		known = c.losses(before, stored)
	}
	for _, problem := range c.losses(version, stored) {
		samePlace := func(p Problem) bool { return p.Severity == Lossy && p.Path == problem.Path }
		if !slices.ContainsFunc(known, samePlace) && !slices.ContainsFunc(c.problems, samePlace) {
			c.report(Lossy, problem.Path, "objects are stored in %s, which does not take what is written there in %s: "+
				"let both versions say the same, or convert by a webhook", stored.Name, version.Name)
		}
	}
}

// losses returns what is lost of objects that go from one version to another as they are.
func (c *comparison) losses(from, to *apiextensionsv1.CustomResourceDefinitionVersion) []Problem {
	other := comparison{before: c.before, after: c.after}
	other.schemas(from.Name+" to "+to.Name+": ", schemaOf(from), schemaOf(to))
	return slices.DeleteFunc(other.problems, func(p Problem) bool { return p.Severity != Lossy })
}

// versionsBetween returns the versions between which objects may have to be converted after a
// change: those in which they are stored, and those that there are then.
func versionsBetween(before, after *apiextensionsv1.CustomResourceDefinition) []string {
	versions := append(storedVersions(before), versionNames(after)...)
	slices.Sort(versions)
	return slices.Compact(versions)
}

func converts(d *apiextensionsv1.CustomResourceDefinition) bool {
	return d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

func versionNames(d *apiextensionsv1.CustomResourceDefinition) []string {
	var names []string
	for _, version := range d.Spec.Versions {
		names = append(names, version.Name)
	}
	return names
}

// schemaOf returns the version's schema; one that has none takes everything.
func schemaOf(version *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
		return version.Schema.OpenAPIV3Schema
	}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
}

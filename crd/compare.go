package crd

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// severity classifies the harm that a change of a definition does.
type severity string

// The severities, the worst first: see Problem.
const (
	impossible severity = "impossible"
	lossy      severity = "lossy"
	narrowing  severity = "narrowing"
)

// Problem is a change of a definition that may harm existing objects or their clients:
//   - impossible: the API server rejects the change. No option allows it.
//   - lossy (option AllowDataLoss): existing objects may lose data at their next write, or may become unreadable.
//   - narrowing (option AllowNarrowing): values or requests that are accepted today would be rejected. Existing objects
//     stay readable. Whether they can be written depends on the field: since 1.30 Kubernetes accepts invalid values
//     that a write does not change (ratcheting). It does not for missing required fields, for example.
type Problem struct {
	severity severity
	// Path is the place of the change: "spec.scope" in the definition itself, "v1: spec.ports[*].name"
	// in the schema of a version. [*] stands for each item of a list and each value of a map.
	Path string
	// Message states the problem and how to avoid it.
	Message string
}

// String returns the problem as one line.
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.severity, p.Path, p.Message) }

// Compare returns the problems of changing the definition before into after, the worst first. It makes
// no request, and changes neither argument.
//
// The caller should read before from a cluster: its status has the versions in which objects are stored.
// A field that after does not set (a conversion) counts as the API's default.
//
// Compare cannot detect changes that only a program's logic makes harmful: another default, or another
// meaning of a field.
func Compare(before, after *apiextensionsv1.CustomResourceDefinition) []Problem {
	c := comparison{before: before, after: after}
	c.compareIdentity()
	if before.Spec.PreserveUnknownFields && !after.Spec.PreserveUnknownFields {
		c.report(lossy, "spec.preserveUnknownFields", "fields that the schemas do not have are kept today and would "+
			"be dropped: "+
			"add every field to the schemas, or set x-kubernetes-preserve-unknown-fields in them")
	}
	for i := range before.Spec.Versions {
		c.compareVersion(&before.Spec.Versions[i])
	}
	c.compareStorage()
	order := []severity{impossible, lossy, narrowing}
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return slices.Index(order, a.severity) - slices.Index(order, b.severity)
	})
	return c.problems
}

// comparison collects the problems of one call of Compare. before and after are never changed.
type comparison struct {
	before, after *apiextensionsv1.CustomResourceDefinition
	problems      []Problem
}

// report adds a problem. Each problem is added at most once: several comparisons may find the same one.
func (c *comparison) report(severity severity, path, format string, args ...any) {
	p := Problem{severity: severity, Path: path, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.problems, p) {
		c.problems = append(c.problems, p)
	}
}

// compareIdentity compares the fields that form the storage path of objects. They are immutable.
func (c *comparison) compareIdentity() {
	before, after := c.before.Spec, c.after.Spec
	// No object can be stored before the definition is established, so the API server allows such changes.
	unused := len(c.before.Status.Conditions) > 0 && !isEstablished(c.before)
	for _, field := range []struct {
		path, before, after string
		mutable             bool
	}{
		{"spec.group", before.Group, after.Group, false},
		{"spec.names.plural", before.Names.Plural, after.Names.Plural, false},
		{"spec.names.kind", before.Names.Kind, after.Names.Kind, unused},
		{"spec.scope", string(before.Scope), string(after.Scope), unused},
	} {
		if field.before != field.after && !field.mutable {
			c.report(impossible, field.path, "%q becomes %q, and the field is immutable: "+
				"remove the definition with all its objects first, or define a new kind and copy the objects",
				field.before, field.after)
		}
	}
}

// compareVersion compares an existing version with the version of the same name in after, if any.
func (c *comparison) compareVersion(before *apiextensionsv1.CustomResourceDefinitionVersion) {
	after := versionOf(c.after, before.Name)
	stored := slices.Contains(storedVersions(c.before), before.Name)
	path := "spec.versions[" + before.Name + "]"
	switch {
	case after == nil && stored:
		c.report(impossible, path, "objects may be stored in this version (status.storedVersions): keep it, with "+
			"served: false; "+
			"Migrate rewrites every object, and then removes the version from status.storedVersions")
		return
	case before.Served && (after == nil || !after.Served) && !before.Deprecated:
		c.report(narrowing, path, "the version would not be served, and requests for it would get \"not found\": "+
			"mark it as deprecated in one release, and stop serving it in a later one")
	}
	if after == nil {
		return
	}
	c.compareSubresources(path, before, after)
	// The schema of a version that is neither stored nor served, before and after, is not in use.
	if !stored && (!before.Served || !after.Served) {
		return
	}
	c.compareSchemas(before.Name+": ", schemaOf(before), schemaOf(after))
}

// compareSubresources compares the subresources and the selectable fields of a version.
func (c *comparison) compareSubresources(path string, before, after *apiextensionsv1.CustomResourceDefinitionVersion) {
	namesAfter := subresourcesOf(after)
	for _, name := range subresourcesOf(before) {
		if !slices.Contains(namesAfter, name) && before.Served && after.Served {
			c.report(narrowing, path+".subresources."+name, "requests for %s would get \"not found\": keep it as "+
				"long as the version is served%s", name, subresourceHint(name))
		}
	}
	_, hasStatus := schemaOf(before).Properties["status"]
	if hasStatus && !slices.Contains(subresourcesOf(before), "status") && slices.Contains(namesAfter, "status") &&
		before.Served {
		c.report(narrowing, path+".subresources.status", "writes of objects would ignore their status silently: let "+
			"every client that writes it use the subresource first, which the API server serves from then on")
	}
	for _, field := range before.SelectableFields {
		if !slices.Contains(after.SelectableFields, field) && before.Served && after.Served {
			c.report(narrowing, path+".selectableFields", "lists and watches with a field selector for %s would be "+
				"rejected: keep it as long as the version is served", field.JSONPath)
		}
	}
}

// subresourceHint returns the further consequence of removing the subresource, or "".
func subresourceHint(subresource string) string {
	if subresource == "status" {
		return "; a client that replaces an object replaces its status too"
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

// compareStorage compares the schemas of different versions. Without a conversion webhook the API server
// changes the apiVersion of an object only, so that an object of one version must fit the schema of the other.
func (c *comparison) compareStorage() {
	from, to := storageVersion(c.before), storageVersion(c.after)
	before, after := versionOf(c.before, from), versionOf(c.after, to)
	if usesWebhook(c.after) || before == nil || after == nil {
		return
	}
	if usesWebhook(c.before) && len(c.before.Spec.Versions) > 1 && len(versionsInUse(c.before, c.after)) > 1 {
		c.report(lossy, "spec.conversion", "a webhook converts versions %s today; without it the API server would "+
			"change the apiVersion only: "+
			"keep the webhook as long as objects are stored in more than one version",
			strings.Join(versionNames(c.before), ", "))
	}
	if from != to {
		c.compareSchemas(from+" to "+to+": ", schemaOf(before), schemaOf(after))
	}
	for i := range c.after.Spec.Versions {
		if version := &c.after.Spec.Versions[i]; version.Served && !version.Storage {
			c.compareNewlyServed(before, version)
			c.compareNewFields(version, after)
		}
	}
}

// compareNewlyServed compares the stored schema with that of a version that was not served before. A
// client that reads an object in this version and writes it back drops the fields that its schema lacks.
// Only losses count: no client depends yet on the values that this version accepts.
func (c *comparison) compareNewlyServed(stored, version *apiextensionsv1.CustomResourceDefinitionVersion) {
	if before := versionOf(c.before, version.Name); before == nil || !before.Served {
		c.problems = append(c.problems, c.losses(stored, version)...)
	}
}

// compareNewFields compares a served version with the stored schema. A field that the served version
// has and the stored schema lacks is dropped by the write itself. Losses that exist already today are
// not reported.
func (c *comparison) compareNewFields(version, stored *apiextensionsv1.CustomResourceDefinitionVersion) {
	var known []Problem
	if before := versionOf(c.before, version.Name); before != nil && before.Served {
		known = c.losses(before, stored)
	}
	for _, problem := range c.losses(version, stored) {
		samePlace := func(p Problem) bool { return p.severity == lossy && p.Path == problem.Path }
		if !slices.ContainsFunc(known, samePlace) && !slices.ContainsFunc(c.problems, samePlace) {
			c.report(lossy, problem.Path, "objects are stored in %s, which does not accept what %s accepts here: "+
				"make the schemas of both versions equal, or convert with a webhook", stored.Name, version.Name)
		}
	}
}

// losses returns the lossy problems of objects that change from one version to another without conversion.
func (c *comparison) losses(from, to *apiextensionsv1.CustomResourceDefinitionVersion) []Problem {
	other := comparison{before: c.before, after: c.after}
	other.compareSchemas(from.Name+" to "+to.Name+": ", schemaOf(from), schemaOf(to))
	return slices.DeleteFunc(other.problems, func(p Problem) bool { return p.severity != lossy })
}

// versionsInUse returns the versions between which the API server may have to convert after the change:
// those in which objects are stored, and all versions of after.
func versionsInUse(before, after *apiextensionsv1.CustomResourceDefinition) []string {
	versions := append(storedVersions(before), versionNames(after)...)
	slices.Sort(versions)
	return slices.Compact(versions)
}

func usesWebhook(d *apiextensionsv1.CustomResourceDefinition) bool {
	return d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

func versionNames(d *apiextensionsv1.CustomResourceDefinition) []string {
	var names []string
	for _, version := range d.Spec.Versions {
		names = append(names, version.Name)
	}
	return names
}

// schemaOf returns the version's schema. A version without a schema accepts and keeps everything.
func schemaOf(version *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
		return version.Schema.OpenAPIV3Schema
	}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
}

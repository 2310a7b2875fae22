package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// kind describes how operations on a kind are generated. The operations themselves are the same for all kinds
// (generate_test.go).
//
// To add a kind: add it to the function of its group (core_test.go, custom_test.go, ...), or add a file with a function of
// a new group, and call it in kinds. Required are resource, name, apiVersion, and memory or definition. Run
//
//	make conformance KINDS=widgets OPS=2000
//
// which generates operations on that kind only, and then OPS=10000, which has minimum counts for it (minimums_test.go).
// KINDS=widgets,configmaps runs two kinds.
type kind struct {
	// resource is the name in paths (widgets), name the name in bodies (Widget), apiVersion their group and version.
	resource, name, apiVersion string
	// otherVersions are also served. A third of the operations use one of them.
	otherVersions []string
	clusterScoped bool
	// weight is how often the kind is chosen, compared with the others. Default: 1.
	weight int

	// memory returns the kind for the server in memory, with its other versions.
	memory func() []*apiserver.Kind
	// definition is the CustomResourceDefinition, which is created in the real server; without memory in both servers.
	definition string

	// fields are the top-level fields besides the metadata. A body has a random choice of them.
	fields []field
	// subresources are addressed by some of the operations.
	subresources []subresource
	// minimal are the fields of the smallest valid object, as in `"spec":{"a":1}`. Default: none.
	minimal string
	// mapField is a field that contains a map of strings; it is used in YAML. Default: a field that is unknown.
	mapField string
	// fieldSelectors of lists and watches, besides the common ones, as in "type=Opaque".
	fieldSelectors []string
	// patch returns the body of a patch of the media type json-patch, merge-patch or strategic-merge-patch. Every third
	// patch is one of these. Default: only the common patches.
	patch func(g *generator, media string) string
	// scenario returns operations with other kinds, which follow each other. One of 15 operations begins one. Default: none.
	scenario func(g *generator) []operation
	// posts make operations that post to a subresource, as one of 10 operations. Default: none.
	posts []func(g *generator, o *operation)
	// alone makes all operations of sequences of this kind, which have no other kind. Default: the operations of all kinds.
	alone func(g *generator) operation
	// minimums of operations on the kind. Default: those of all kinds (minimums_test.go).
	minimums func() []minimum
	// notWith is a resource that is in other sequences, because the real server writes objects of this kind about it.
	notWith string
	// createOnUpdate is true if an update of a missing object creates it.
	createOnUpdate bool
	// unreachable are the minimums of minimums_test.go that the kind cannot reach, with the reason, as in "delete 409".
	unreachable map[string]string
	// noDeleteCollection is true if the real server does not have this verb.
	noDeleteCollection bool
	// randomOrder is true if the real server has a random order of finalizers, and of the errors of labels.
	randomOrder bool
}

// field is a top-level field.
type field struct {
	name string
	// weight is how often it is chosen, compared with other fields. Default: 1. A required field is in almost every body.
	weight   int
	required bool
	// apiVersion is the only version that has the field. Default: all have it.
	apiVersion string
	// value returns a value as JSON, sometimes an invalid one.
	value func(g *generator) string
}

// subresource is a subresource that some operations address.
type subresource struct {
	name string
	// operations are the ones that the real server supports: get, update, patch, apply. percent is how many of these
	// operations address the subresource.
	operations []string
	percent    int
	// body returns the body of an update. Default: the body of the object.
	body func(g *generator, o operation, metadata string) string
}

// kinds returns all kinds. Each group has a file.
func kinds() []*kind {
	return slices.Concat(
		coordinationKinds(),
		coreKinds(),
		eventKinds(), // not next to those with Services: see runExpired
		customKinds(),
		podKinds(),
		budgetKinds(),
		definitionKinds(),
		workloadKinds(),
		schemaKinds(),
		networkKinds(),
	)
}

// chosenKinds returns the kinds named in CONFORMANCE_KINDS, separated by commas. Default: all.
func chosenKinds(t *testing.T) []*kind {
	t.Helper()
	names := os.Getenv("CONFORMANCE_KINDS")
	if names == "" {
		return kinds()
	}
	var chosen []*kind
	for name := range strings.SplitSeq(names, ",") {
		k := kindOf(name)
		if k == nil {
			t.Fatalf("CONFORMANCE_KINDS=%s: no kind has the resource %q", names, name)
		}
		chosen = append(chosen, k)
	}
	return chosen
}

// kindOf returns the kind with a resource, or nil.
func kindOf(resource string) *kind {
	for _, k := range kinds() {
		if k.resource == resource {
			return k
		}
	}
	return nil
}

// builtin is memory of a kind with one version.
func builtin(newKind func() *apiserver.Kind) func() []*apiserver.Kind {
	return func() []*apiserver.Kind { return []*apiserver.Kind{newKind()} }
}

// values returns a function that chooses one of the values.
func values(all ...string) func(g *generator) string {
	return func(g *generator) string { return pick(g, all...) }
}

// typeMeta returns the fields apiVersion and kind.
func (k *kind) typeMeta(version string) string {
	return `"apiVersion":"` + version + `","kind":"` + k.name + `",`
}

// field returns the name of a random field.
func (k *kind) field(g *generator) field {
	return weighted(g, k.fields, func(f field) int { return max(1, f.weight) })
}

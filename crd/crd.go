package crd

import (
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

const kindName = "CustomResourceDefinition"

// crdKind returns the kind of definitions. Every request passes it, because the Cluster's scheme need not
// contain the type.
func crdKind() schema.GroupVersionKind {
	return apiextensionsv1.SchemeGroupVersion.WithKind(kindName)
}

// checkDefinition returns the mistakes without which Compare, Ensure and Remove may rely on the following:
// name, group, kind, plural and scope are set; version names are unique; exactly one version has storage.
// The API server validates everything else.
func checkDefinition(d *apiextensionsv1.CustomResourceDefinition) error {
	if d == nil {
		return errors.New("the definition is nil")
	}
	var mistakes usercode.Mistakes
	mistakes.AddIf(d.Spec.Group == "", "spec.group is required")
	mistakes.AddIf(d.Spec.Names.Kind == "", "spec.names.kind is required")
	mistakes.AddIf(d.Spec.Names.Plural == "", "spec.names.plural is required")
	if want := d.Spec.Names.Plural + "." + d.Spec.Group; d.Name != want && mistakes.Err() == nil {
		mistakes.Addf("metadata.name is %q, must be %q, <plural>.<group>", d.Name, want)
	}
	mistakes.AddIf(d.Spec.Scope != apiextensionsv1.NamespaceScoped && d.Spec.Scope != apiextensionsv1.ClusterScoped,
		"spec.scope is %q, must be %s or "+
			"%s", d.Spec.Scope, apiextensionsv1.NamespaceScoped, apiextensionsv1.ClusterScoped)
	var names, storage []string
	for i, version := range d.Spec.Versions {
		if version.Name == "" {
			mistakes.Addf("spec.versions[%d].name is required", i)
		} else if slices.Contains(names, version.Name) {
			mistakes.Addf("spec.versions contains %s twice", version.Name)
		}
		names = append(names, version.Name)
		if version.Storage {
			storage = append(storage, version.Name)
		}
	}
	switch len(storage) {
	case 0:
		mistakes.Addf("no version has storage: true: exactly one must be the storage version")
	case 1:
	default:
		mistakes.Addf("%d versions have storage: true (%q): exactly one must be the storage version", len(storage),
			storage)
	}
	return mistakes.Err()
}

// checkDefinitions checks each definition, and that no name occurs twice.
func checkDefinitions(definitions []*apiextensionsv1.CustomResourceDefinition) error {
	var errs []error
	seen := map[string]bool{}
	for i, d := range definitions {
		name := fmt.Sprintf("definition %d", i+1)
		if d != nil && d.Name != "" {
			name = kindName + " " + d.Name
		}
		if err := checkDefinition(d); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if seen[d.Name] {
			errs = append(errs, fmt.Errorf("%s occurs twice", name))
		}
		seen[d.Name] = true
	}
	return errors.Join(errs...)
}

// versionOf returns a pointer to the version with this name, or nil.
func versionOf(
	d *apiextensionsv1.CustomResourceDefinition, name string,
) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Name == name {
			return &d.Spec.Versions[i]
		}
	}
	return nil
}

// storageVersion returns the name of the version that new writes are stored in, or "".
func storageVersion(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range d.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

// storedVersions returns the names of the versions in which objects may be stored: status.storedVersions
// and the storage version. A definition that was not read from a cluster has only the latter.
func storedVersions(d *apiextensionsv1.CustomResourceDefinition) []string {
	stored := slices.Clone(d.Status.StoredVersions)
	if storage := storageVersion(d); storage != "" && !slices.Contains(stored, storage) {
		stored = append(stored, storage)
	}
	return stored
}

// servedKinds returns one kind for each served version, in the order of spec.versions.
func servedKinds(d *apiextensionsv1.CustomResourceDefinition) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, version := range d.Spec.Versions {
		if version.Served {
			kinds = append(kinds, schema.GroupVersionKind{
				Group: d.Spec.Group, Version: version.Name,
				Kind: d.Spec.Names.Kind,
			})
		}
	}
	return kinds
}

// Package crd installs, compares and removes CustomResourceDefinitions, before the controllers start, and in tests.
//
// Parse and ParseFS read definitions from YAML, as code generators write it. Ensure installs definitions and returns
// when objects can be created.
//
//	crds, err := crd.ParseFS(definitions, "crds/*.yaml")
//	...
//	ensured, err := crd.Ensure(ctx, c, crds)
//
// In this example definitions is an embed.FS with the folder crds.
//
// A change of a definition can destroy data without an error: the API server drops the fields that a
// schema lacks, at the next write of each object. Ensure therefore compares before it writes, and refuses
// harmful changes unless the caller allows them. Compare returns the list.
//
// During a rolling update, an older and a newer version of a program ensure different versions of one
// definition. The newer program adds properties. If the older one restarts, Ensure refuses to remove these
// properties and returns an error.
//
// Migrate rewrites stored objects after a change of the storage version. Option AcceptNewer of Ensure keeps the
// newer definition when the older program restarts.
//
// The process needs get, create and patch of customresourcedefinitions in the API group
// apiextensions.k8s.io (create, because a server-side apply may create). Remove also needs delete, and list
// of the kind that the definition defines.
package crd

// Package crd installs and removes CustomResourceDefinitions: what a program does before its
// controllers start, and what its tests do.
//
// Definitions come from YAML, as code generators write it (Parse, ParseFS), or from Go values
// (New). Ensure makes the cluster have them, and returns when objects can be created.
//
//	crds, err := crd.ParseFS(definitions, "crds/*.yaml")
//	...
//	ensured, err := crd.Ensure(ctx, c, crds)
//
// There, definitions is an embed.FS that has the folder crds.
//
// A definition is the schema of a database, and a change of it can destroy data without a word:
// the API server drops what a schema does not know, at the next write of each object. So Ensure
// compares before it writes, and refuses such changes (Compare says which), unless the caller
// names them.
//
// A program whose older and newer versions run at the same time, in a rolling update, ensures
// two versions of one definition. The newer one adds properties; the older one, when it starts
// again, would remove them, and is refused: it had better not run any longer.
//
// The Role of the process needs get, list, watch, create and patch of customresourcedefinitions in
// the API group apiextensions.k8s.io (create, because a patch that creates needs it), and for
// Remove delete, and list of what the definitions define.
package crd

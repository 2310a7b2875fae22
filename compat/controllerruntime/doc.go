// Package controllerruntime is a cache for controller-runtime that keeps the encoded bytes of objects instead of their
// Go structs. A main changes one line:
//
//	manager, err := ctrl.NewManager(config, ctrl.Options{NewCache: controllerruntime.NewCache})
//
// Everything else stays controller-runtime's: the manager, the client, the builder, and also the part of its cache that
// applies cache.Options, combines namespaces and waits for informers. Only its informers are replaced.
//
// Typed, unstructured and metadata-only objects of a kind are separate informers, as there. They keep managedFields,
// unless the transform is cache.TransformStripManagedFields. What differs is in docs/migrating/controller-runtime.md.
package controllerruntime

// Package controllerruntime lets an operator on controller-runtime use parts of this module, one line at a time.
//
// NewCache is a cache that keeps the encoded bytes of objects instead of their Go structs:
//
//	manager, err := ctrl.NewManager(config, ctrl.Options{NewCache: controllerruntime.NewCache})
//
// Everything else stays controller-runtime's: the manager, the client, the builder, and also the part of its cache that
// applies cache.Options, combines namespaces and waits for informers. Only its informers are replaced.
//
// Typed, unstructured and metadata-only objects of a kind are separate informers, as there. They keep managedFields,
// unless the transform is cache.TransformStripManagedFields.
//
// NewControllerManagedBy makes a controller whose queue is the engine of package controller: each run has its causes
// (controller.Controller.Explain). With NewClient and NewCache it also has its writes, a run begins when the informers
// show what the last run of its key wrote, and a key that runs again and again without progress is reported and held
// back. Watches, predicates, event handlers and workers stay controller-runtime's, and so do the context and the
// metrics of a run.
//
// What differs is in docs/migrating/controller-runtime.md.
package controllerruntime

// Package source has what enqueues keys besides a controller's own Retriever: objects that
// belong to the controller's (Owned, OwnerLabel), objects that they refer to (Mapped), and
// anything else (Channel, and controller.SourceFunc for what needs a loop of its own).
//
// Put a source into controller.Config.Sources, or add it to a controller that runs with
// AddSource. The controller runs the informer that a source reads, waits for its first list,
// and counts it into its readiness. Mistakes are returned by controller.New and AddSource.
//
// The cause of each enqueued key says where it came from: the informer's name, the object's
// key and what happened to it, as in "Deployment shop/web updated".
package source

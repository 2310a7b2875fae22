// Package source has what enqueues keys besides a controller's own Retriever:
//
//   - Owned, OwnerLabel: objects that belong to the controller's, with an informer of metadata of
//     their own; OwnedIn, OwnerLabelIn: the same with an informer that is there; OwnedBy: where
//     something else tells whose an object is.
//   - Mapped: objects that the controller's refer to.
//   - Poll: what is outside the cluster, asked again and again; HTTP is a document.
//   - Channel: keys from anywhere; controller.SourceFunc for what needs a loop of its own.
//
// Put a source into controller.Config.Sources, or add it to a controller that runs with
// AddSource. The controller runs the informer that a source reads, waits for its first list,
// and counts it into its readiness. Mistakes are returned by controller.New and AddSource.
//
// The cause of each enqueued key says where it came from: the informer's name, the object's
// key and what happened to it, as in "Deployment shop/web updated".
package source

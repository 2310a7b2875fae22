// Package source has the sources that enqueue keys in addition to a controller's own Retriever:
//
//   - Owned: the owner in the owner references of another kind, without an informer of yours (only metadata).
//   - OwnedIn: the same for the objects of an informer, to share it, to select objects, or to compare spec or status.
//   - OwnedBy: the owners that a function reads from the metadata of children: those of package owned.
//   - OwnerLabel: the object that is named in a label of the objects of an informer.
//   - Mapped: the keys that a function returns for each changed object of an informer, decoded.
//   - Shared: the same for a SharedInformer of client-go, which the program runs.
//   - Channel: keys from a channel. controller.SourceFunc is for sources with a loop of their own.
//
// WithTrigger changes the priority and the delay of the keys of each of them, and of sources of the program.
//
// Package poll has the source for items outside the cluster, which it polls repeatedly.
//
// Put a source into controller.Config.Sources, or add it to a running controller with AddSource. The controller runs
// the informer that a source reads, waits for its first list, and includes it in its readiness. controller.New and
// AddSource return the mistakes in a source.
//
// The cause of each enqueued key says where the key came from: the informer's name, the object's key and the type of
// the change, as in "Deployment shop/web updated".
package source

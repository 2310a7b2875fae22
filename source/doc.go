// Package source has the sources that enqueue keys in addition to a controller's own Retriever:
//
//   - Owned, OwnerLabel: the owners of dependents, from an informer of metadata that the source creates. OwnedIn,
//     OwnerLabelIn: the same with an existing informer. OwnedBy: the same with a function that returns the owners.
//   - Mapped: the keys that a function returns for each changed object of an informer.
//   - Poll: items outside the cluster, which are polled repeatedly. HTTP polls a document.
//   - Channel: keys from a channel. controller.SourceFunc is for sources with a loop of their own.
//
// Put a source into controller.Config.Sources, or add it to a running controller with AddSource. The controller runs
// the informer that a source reads, waits for its first list, and includes it in its readiness. controller.New and
// AddSource return the mistakes in a source.
//
// The cause of each enqueued key says where the key came from: the informer's name, the object's key and the type of
// the change, as in "Deployment shop/web updated".
package source

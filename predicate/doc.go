// Package predicate has conditions on changes: which of them a controller or a source is to
// hear of.
//
// Which to use:
//   - The handler reads the spec of its objects and writes their status: GenerationChanged.
//     Where it also reads labels or annotations, or waits for somebody's finalizer,
//     Or(GenerationChanged(), LabelsChanged(), FinalizersChanged()).
//   - It waits for what others report of an object, such as the ready replicas of a
//     Deployment: StatusChanged.
//   - The kind counts no generations (ConfigMap, Secret, Service, Node, ...): SpecChanged,
//     which for a Node leaves out the heartbeats.
//   - Only some of the objects: Labels and InNamespaces, where the Retriever has to fetch all
//     of them for somebody else. Otherwise select with informer.Selection, and the API server
//     sends no others.
//   - Anything else: Func.
//
// A predicate only drops the change, not the object: the handler still sees the object's
// newest state when it runs for another reason. But what was dropped starts no run: if it did
// matter, that is seen when the controller's next resync handles the object, or its owner.
// Predicates save runs; a handler must be right without them.
//
// The predicates whose names end in Changed compare the two states of an Updated. They pass
// Listed, Added and Deleted. They also pass an Updated whose UID differs: the object was
// deleted and created again in between, and what the two have in common (their generation is
// often 1) says nothing. What cannot be read passes, too, in every predicate: one run too many
// is better than one too few.
//
// Predicates are called while the informer announces the change, so they must be quick. They
// may read informers, and must not wait for anything. All of this package's are safe for
// concurrent use.
package predicate

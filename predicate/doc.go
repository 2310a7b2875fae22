// Package predicate contains conditions on changes. Controllers and sources use them to ignore changes that do
// not matter to the handler.
//
// Which predicate to use:
//   - The handler reads the spec of its objects and writes their status: GenerationChanged. If it also reads
//     labels: Or(GenerationChanged(), Changed(kube.ChangedLabels)).
//   - The handler waits for a status that another controller writes, such as the ready replicas of a
//     Deployment: StatusChanged.
//   - The kind has no generations (ConfigMap, Secret, Service, Node, ...): SpecChanged, which drops the
//     heartbeats of a Node.
//   - The handler is for some of the objects only: kube.Selection, so that the API server sends only these. If
//     other readers of the informer need all objects: Func.
//   - All other cases: Func, or a function of your own with informer.Change.Changed, which does not decode. Sources
//     take several predicates: a change must pass all of them.
//
// A predicate drops a change, not the object: the handler sees the newest state of the object whenever it runs
// for another reason. A dropped change starts no run. If it did matter, the controller's next resync of the
// object or its owner corrects that. Predicates reduce the number of runs; a handler must be correct without
// them.
//
// The predicates with names that end in Changed compare the two states of an Updated. They pass Listed, Added and
// Deleted. They also pass an Updated with different UIDs: the object was deleted and created again, so equal
// fields mean nothing (the generation of a new object is often 1). Every predicate passes a change that it
// cannot decode, because an unnecessary run is harmless and a missing one is not.
//
// The informer calls predicates while it delivers the change, so they must be fast. They may read informers, and
// must not block. All predicates of this package are safe for concurrent use.
package predicate

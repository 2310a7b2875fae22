// Package informer caches Kubernetes objects and delivers their changes.
//
//	pods, err := informer.New(informer.Config[*corev1.Pod]{Retriever: informer.Retrieve[*corev1.Pod](cluster)})
//	...
//	defer pods.Join(ctx)() // runs it until the function returns
//	if err := pods.WaitSynced(ctx); err != nil {
//		return err
//	}
//	pod, found, err := pods.Get(kube.Key{Namespace: "shop", Name: "web-1"})
//
// A controller makes and runs the informer of its own objects, those in Config.Reads, and those of its sources. A
// program calls New for informers that handlers read from, or that several controllers share.
//
// # Retrievers
//
// A Retriever lists and watches the objects of one type. Retrieve returns one for all objects of a kind,
// RetrieveSelected for a selection (namespaces, labels, fields), and RetrieveMetadata for the metadata alone. Combine
// combines several, and FromListerWatcher adapts a ListerWatcher of client-go. SetRetriever changes the selection while
// the informer runs.
//
// # Reading
//
// Get, List, All and Count read the cache. They never make a request and never block. List and Count take a Query: by
// namespace, labels, owner, or an Index of Config.Indexes. A Snapshot is the cache at one time. As returns a view of
// the same cache through another type. The cache has compressed bytes, and every read returns an object that belongs
// to the caller, except for those of WithoutCopies. Config.Cut removes fields that no reader needs.
//
// A cache is always a little stale. Package controller makes sure that a handler sees its own earlier writes.
//
// # Changes
//
// Subscribe delivers each change as a Change, with its type and key, to a function. Decode returns both states. A
// Predicate selects changes; package predicate has the common ones. Package subscription delivers changes on channels.
//
// # Errors
//
// An informer retries all errors of lists and watches. Health, Ready, the log and the metrics report them. Reads return
// ErrNotRunning if the informer does not run, because the cache would be empty or stale, and an error for objects that
// have not been listed.
//
// The order of the code along the path of an event is in docs/architecture.md.
package informer

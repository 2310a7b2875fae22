// Package finalizer is for what has to be done before an object may go: things outside of the
// cluster that the object stands for, and that nothing else cleans up.
//
// A finalizer is an entry in an object's metadata. While there is one, a deleted object stays, with
// its deletionTimestamp set. So an entry that is there before the first thing outside is made, and
// goes after the last one was removed, is a promise that nothing is left behind.
//
// New makes a Finalizer of the steps of the teardown, and middleware.Finalizer puts it around a
// Handler:
//
//	cleanup, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
//		Client: c,
//		Name:   "shop.example.com/cleanup",
//		Steps: []finalizer.Step[*corev1.ConfigMap]{
//			{Name: "dns", Run: removeRecord},
//			{Name: "bucket", Run: removeBucket},
//		},
//	})
//	...
//	handler := controller.Chain(handle,
//		middleware.Finalizer(cleanup, middleware.FinalizerOptions[*corev1.ConfigMap]{}))
//
// Add, Remove and Has are the entry alone, for those who do the rest themselves.
//
// # An object's other finalizers
//
// An object may have several finalizers, of controllers that know nothing of each other. All that
// is written here are JSON patches that touch one entry, under the test that it is where it was
// seen: no other entry is lost, however stale the cache is.
package finalizer

// Package finalizer runs cleanup steps before an object is gone, for things outside of the cluster that belong to the
// object and that Kubernetes does not delete.
//
// A finalizer is an entry in the metadata of an object. While an object has one, a deleted object stays, with its
// deletionTimestamp set. If the entry is added before the first external thing is created, and removed after the last
// one is deleted, nothing is left behind.
//
// New creates a Finalizer from the steps of the teardown, and middleware.Finalizer wraps a Handler with it:
//
//	cleanup, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
//		Client: c,
//		Name:   "shop.example.com/cleanup",
//		Steps: []finalizer.Step[*corev1.ConfigMap]{
//			{Name: "dns", Run: removeRecord}, {Name: "bucket", Run: removeBucket},
//		},
//	})
//	...
//	handler := controller.Chain(handle,
//		middleware.Finalizer(cleanup, middleware.FinalizerOptions[*corev1.ConfigMap]{}))
//
// # Other finalizers
//
// An object may have finalizers of several controllers. This package sends only JSON patches that change one entry and
// test its position, so no other entry is lost, however outdated the cache is. Add and Remove manage only the entry.
package finalizer

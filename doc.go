// Package evenkeel has an operator in one value: Main, Program, Config and Run join the packages of a library for
// Kubernetes controllers. Package controller is the smallest way to begin. A controller calls a handler with each
// object that changes:
//
//	printer, err := controller.New(controller.Config[*corev1.Pod]{
//		Name:    "pod-printer",
//		Cluster: cluster,
//		Handler: func(_ context.Context, pod *corev1.Pod) error {
//			fmt.Printf("%s/%s is %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
//			return nil
//		},
//	})
//	if err != nil {
//		return err
//	}
//	return printer.Run(ctx)
//
// kube.LoadConfig and kube.Connect create the cluster. A handler returns nil, the result of controller.RequeueAfter or
// controller.Terminal, or any other error, which is retried.
//
// An operator with children, status, finalizer and webhooks is a Config of New. What surrounds it is a Program, with
// which Main calls the program's function:
//
//	cluster, err := p.Connect()
//	if err != nil {
//		return err
//	}
//	quotas, err := evenkeel.New(evenkeel.Config[*corev1.Namespace]{
//		Name: "quotas", Cluster: cluster,
//		Owns: []watched.Kind{watched.Of[*corev1.ResourceQuota]()},
//		Handle: func(ctx context.Context, namespace *corev1.Namespace, run *evenkeel.Run) error {
//			_, err := run.Apply(ctx, quotaOf(namespace))
//			return err
//		},
//	})
//	if err != nil {
//		return err
//	}
//	return p.Run(ctx, quotas)
//
// # Packages
//
// Controllers:
//
//   - controller calls handlers, and reports why.
//   - informer caches objects: reads, queries, indexes, changes.
//   - predicate selects the changes that run a handler.
//   - source enqueues further keys: for children, references, channels and polls.
//   - middleware wraps handlers: status, finalizer, logs, traces.
//   - retry has error classes and their retry policies.
//   - leader elects one process of several.
//   - subscription delivers changes to a channel, without a controller.
//   - kube has what all packages share: objects, keys, and the connection to a cluster.
//
// The toolkit, for handlers and for programs without a controller:
//
//   - client makes typed requests, and reads from informers; client/strategic creates strategic merge patches.
//   - owned applies the children of an object; owned/watched also creates their informers and sources.
//   - status writes conditions and the status.
//   - readiness computes whether an object is ready.
//   - finalizer runs a teardown in steps.
//   - ownerref edits owner references.
//   - event writes Events about objects.
//   - crd installs CustomResourceDefinitions.
//
// Other packages: metrics/prometheus exports metrics, localcluster starts a real API server for tests, and the
// module tracing/otel exports traces.
//
// # Reading the source
//
// docs/architecture.md lists the functions that one event passes, in reading order, from the watch to the end of the
// handler. docs/reference/contracts.md lists the guarantees and their tests. docs/decisions has the reasons.
package evenkeel

// Package controllers models the controllers of a cluster for the API server in memory: garbage collector, namespaces
// and their first objects, Deployments, ReplicaSets, StatefulSets, PersistentVolumeClaims, Jobs, EndpointSlices,
// Endpoints, PodDisruptionBudgets, the scheduler, the kubelets, and the Pod garbage collector for Pods without a node.
//
// The models do what the controllers of Kubernetes do, in an order that is always the same. A Manager has no goroutine
// of its own and no informers: the server reports each committed write, so the view of the models is never stale, and
// they work in Step and Run, on one object at a time. Each write is an ordinary request with the user agent of the real
// controller: it has managed fields, can conflict, and can fail. Failed work is repeated with the backoff of the real
// controllers. Package simulation/conformance/controllers compares end states with those of a real cluster.
//
// Different from the real controllers:
//
//   - No informer is stale, and no controller reads an object before it writes.
//   - There are no Events, Node objects or quotas. The scheduler counts Pods only.
//   - All containers of a Pod start and end at the same time. Probes, volumes and init containers always succeed; see
//     PodBehavior for what can fail. A deleted Pod with finalizers has phase Failed.
//   - PersistentVolumeClaims are bound at once, without a PersistentVolume, and can be deleted while Pods use them.
//   - EndpointSlices are filled anew after each change, and have no hints, no zones and no annotation with the time of
//     the change. Endpoints have no limit, and those of a Service without a selector are not mirrored.
//   - Not modelled: DaemonSets, which need Nodes; CronJobs; autoscaling.
package controllers

// Package readiness computes from an object's status whether the object has reached its desired state: a
// Deployment is rolled out, a Job is done, a custom resource is Ready. It makes no requests.
//
// Of supports the built-in kinds of Kubernetes, and the conventions of other kinds (status.observedGeneration
// and the conditions Ready, Reconciling and Stalled). Its statuses and rules are those of kstatus
// (sigs.k8s.io/cli-utils), which GitOps tools use. Of documents where it differs.
//
// Functions that wait for objects take a Check: Of, another function of this package, or the caller's own
// function. All combines checks.
//
//	ready := readiness.All(readiness.Of, readiness.Condition("shop.example.com/Warm", metav1.ConditionTrue))
package readiness

import "github.com/evenkeel-go/evenkeel/kube"

// Status is the progress of an object towards its desired state. The values are those of kstatus
// (sigs.k8s.io/cli-utils).
type Status string

// The statuses.
const (
	// Current: the object has reached its desired state.
	Current Status = "Current"
	// InProgress: the object has not reached its desired state yet.
	InProgress Status = "InProgress"
	// Failed: the object cannot reach its desired state without a change.
	Failed Status = "Failed"
	// Terminating: the object is being deleted.
	Terminating Status = "Terminating"
)

// State is a Status with its reason.
//
// The rules of Of by kind, with the differences from kstatus in parentheses:
//   - Deployment, ReplicaSet, ReplicationController: Current if all replicas exist, are updated and
//     available, and no others exist. A Deployment past its progress deadline is Failed. A paused
//     Deployment is judged by its replicas (kstatus: InProgress until it is resumed).
//   - StatefulSet: the same. With a partition only the replicas from it on must be updated. With update
//     strategy OnDelete none must be (kstatus: such a set is always Current).
//   - DaemonSet: Current if each selected node has a Pod that is available and, unless the strategy is
//     OnDelete, updated (kstatus ignores OnDelete).
//   - Pod: Current if it is Ready or has succeeded. Failed if it has failed (kstatus: Current), or if a
//     container or init container is in CrashLoopBackOff. An unschedulable Pod is InProgress, because a
//     node may be added (kstatus: Failed after 15 s).
//   - Job: Current if it is complete, Failed if it has failed. Running and suspended Jobs are InProgress
//     (kstatus: Current).
//   - PersistentVolumeClaim: Current if it is bound, Failed if its volume is lost (kstatus: InProgress). A
//     claim with volume binding mode WaitForFirstConsumer stays InProgress until a Pod uses it.
//   - Service of type LoadBalancer: Current if it has an external address (kstatus: a cluster IP). Other
//     Services are Current.
//   - PodDisruptionBudget: Current if its controller has processed it. The health of its Pods does not
//     matter.
//   - CustomResourceDefinition: Current if it is Established, Failed if its names are not accepted.
//   - APIService: Current if it is Available (kstatus: always Current).
//   - Namespace: Current unless it is Terminating.
//   - CronJob and all other kinds: no rule.
type State struct {
	Status Status
	// Message describes the missing part of the desired state. It is empty for Current.
	Message string
}

// Ready reports whether the status is Current.
func (s State) Ready() bool { return s.Status == Current }

// String returns "Status: Message", or only the status if the message is empty.
func (s State) String() string {
	if s.Message == "" {
		return string(s.Status)
	}
	return string(s.Status) + ": " + s.Message
}

// Check returns the state of an object, which may be nil. It must not change the object, and must be safe for
// concurrent use.
type Check func(obj kube.Object) State

// Package readiness computes from an object's status whether the object has reached its desired state: a
// Deployment is rolled out, a Job is done, a custom resource is Ready. It makes no requests.
//
// Of supports the built-in kinds of Kubernetes, and the conventions of other kinds (status.observedGeneration
// and the conditions Ready, Reconciling and Stalled). Its statuses and rules are those of kstatus
// (sigs.k8s.io/cli-utils), which GitOps tools use. Of documents where it differs.
//
// Functions that wait for objects take a Check: Of, another function of this package, or the caller's own
// function. All and Not combine checks.
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

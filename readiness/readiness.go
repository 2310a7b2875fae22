// Package readiness tells from an object's status whether the object is what its spec asks for:
// whether a Deployment is rolled out, a Job done, a custom resource Ready. It makes no requests.
//
// Of knows the kinds that are built into Kubernetes, and the conventions that other kinds keep to
// (status.observedGeneration and the conditions Ready, Reconciling and Stalled): the words and
// the rules are those of kstatus (sigs.k8s.io/cli-utils), which `kubectl wait`'s users and GitOps
// tools know. Where it differs from kstatus, it says so.
//
// What waits for objects takes a Check: Of itself, another one of this package, or a function of
// one's own. And, Or and Not are All, Any and Not.
//
//	ready := readiness.All(readiness.RolledOut, readiness.Condition("shop.example.com/Warm", metav1.ConditionTrue))
package readiness

import "github.com/evenkeel-go/evenkeel/kube"

// Status is where an object is on the way to what its spec asks for. The words are those of
// kstatus (sigs.k8s.io/cli-utils).
type Status string

// The statuses.
const (
	// Current: the object is as its spec asks.
	Current Status = "Current"
	// InProgress: somebody is at work on it, or has not begun.
	InProgress Status = "InProgress"
	// Failed: it will not get there by itself.
	Failed Status = "Failed"
	// Terminating: it is being deleted.
	Terminating Status = "Terminating"
)

// State is a status and why.
type State struct {
	Status Status
	// Message says what is missing, for people. Empty when Current.
	Message string
}

// Ready reports whether the status is Current.
func (s State) Ready() bool { return s.Status == Current }

// String returns the status and, if there is one, the message.
func (s State) String() string {
	if s.Message == "" {
		return string(s.Status)
	}
	return string(s.Status) + ": " + s.Message
}

// Check tells the state of an object. It must not change the object, and must be safe for
// concurrent use.
type Check func(obj kube.Object) State

// Package readiness tells from an object's status whether the object is what its spec asks for:
// whether a Deployment is rolled out, a Job done, a custom resource Ready. It makes no requests.
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

// Check tells the state of an object.
type Check func(obj kube.Object) State

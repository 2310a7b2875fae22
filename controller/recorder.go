package controller

import (
	"github.com/evenkeel-go/evenkeel/informer"
)

// Recorder receives a controller's measurements. Its methods are called for every event and run. Triggered and
// Skipped are also called while the informer announces a change. All methods must be quick and safe for concurrent
// use, and must not call the controller or its informer.
type Recorder interface {
	informer.Recorder
	// ObserveController is called when a controller starts to run. The Recorder may call stats at any time until stop
	// is called. It must accept several controllers with the same name.
	ObserveController(name string, stats func() Stats) (stop func())
	// Triggered is called when a key is added to the queue, also if the queue contains the key already.
	// source is from a small fixed set: see Cause.
	Triggered(controller, source string, cause CauseType)
	// Skipped is called when a change does not add its key to the queue.
	Skipped(controller string, why SkipReason)
	// ProblemDetected is called when a problem starts.
	ProblemDetected(controller string, problem ProblemType)
	// RunEnded is called after each run.
	RunEnded(controller string, run RunRecord)
}

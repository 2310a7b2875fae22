package controller

import (
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Recorder receives a controller's measurements. Its methods are called on the way of
// every event and run, Triggered and Skipped also while the informer announces a change: they must be
// quick, safe for concurrent use, and must not call the controller or its informer.
type Recorder interface {
	informer.Recorder
	// ObserveController is called when a controller begins to run. The Recorder may call
	// stats at any time until stop is called. It must accept several controllers of the
	// same name.
	ObserveController(name string, stats func() Stats) (stop func())
	// Triggered is called when something puts a key into the queue, also when it merges with one
	// that is there. source is of a small fixed set: see Cause.
	Triggered(controller, source string, cause CauseType)
	// Skipped is called when a change does not put its key into the queue.
	Skipped(controller string, why SkipReason)
	// ProblemDetected is called when an problem begins.
	ProblemDetected(controller string, problem ProblemType)
	// Handled is called after each run.
	RunEnded(controller string, run RunSummary)
}

// Handled is what a Recorder learns of a run.
type RunSummary struct {
	Outcome Outcome
	// Attempt is how many runs of the key failed in a row before this one: 0 unless this
	// run was a retry.
	Attempt int
	// Class is the class of the error of a run that failed. Otherwise empty.
	Class retry.Class
	// Wait is how long the key was due before the run, and Held for how much of that it was kept
	// back.
	Wait time.Duration
	Held time.Duration
	// Decode is how long reading the object from the cache took, Duration the whole run.
	Decode   time.Duration
	Duration time.Duration
	// Writes is how many writes the run made that were done and changed something.
	Writes int
	// TraceID is the trace that the run belongs to. Empty: none.
	TraceID string
}

func handledOf(r *RunRecord) RunSummary {
	return RunSummary{
		Outcome: r.Outcome, Attempt: r.Attempt, Class: r.Class, Wait: r.Wait, Held: r.Held,
		Decode: r.Decode, Duration: r.Duration, Writes: r.writesDone, TraceID: r.TraceID,
	}
}

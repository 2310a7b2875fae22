package controller

import (
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/retry"
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
	RunEnded(controller string, run RunSummary)
}

// RunSummary is the summary of a run for a Recorder.
type RunSummary struct {
	Outcome Outcome
	// Attempt is the number of runs of the key that failed in a row before this one: 0 unless this run is a retry.
	Attempt int
	// Cause is the type of the run's first cause.
	Cause CauseType
	// Class is the error class of a failed run. Otherwise empty.
	Class retry.Class
	// Wait is how long the key was ready before the run. Held is the part of it for which the key was held back.
	Wait time.Duration
	Held time.Duration
	// Decode is the time for reading the object from the cache. Duration is the time of the whole run.
	Decode   time.Duration
	Duration time.Duration
	// Writes is the number of the run's writes that succeeded and changed something.
	Writes int
	// TraceID is the trace that the run belongs to. Empty: no trace.
	TraceID string
}

func summaryOf(r *RunRecord) RunSummary {
	return RunSummary{
		Outcome: r.Outcome, Attempt: r.Attempt, Cause: r.Causes.firstType(), Class: r.Class, Wait: r.Wait, Held: r.Held,
		Decode: r.Decode, Duration: r.Duration, Writes: r.writesDone, TraceID: r.TraceID,
	}
}

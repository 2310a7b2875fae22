package controller

import (
	"context"
	"time"

	engine "github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// MetricsRecorder records the metrics of a controller. Package metrics/prometheus has one.
type MetricsRecorder interface {
	// IncResourceEventQueued counts an object that is added to the queue. isRequeue is true for a retry.
	IncResourceEventQueued(ctx context.Context, controller string, isRequeue bool)
	// ObserveResourceInQueueDuration records how long an object was in the queue. queuedAt is the time when it became
	// ready.
	ObserveResourceInQueueDuration(ctx context.Context, controller string, queuedAt time.Time)
	// ObserveResourceProcessingDuration records a run of the Handler.
	ObserveResourceProcessingDuration(ctx context.Context, controller string, success bool, startProcessingAt time.Time)
	// RegisterResourceQueueLengthFunc registers a function that returns the length of the queue.
	RegisterResourceQueueLengthFunc(controller string, f func(context.Context) int) error
}

// DummyMetricsRecorder records nothing.
var DummyMetricsRecorder = dummy(0) //nolint:gochecknoglobals,revive // a variable of this type in Kooper

type dummy int

func (dummy) IncResourceEventQueued(context.Context, string, bool)                       {}
func (dummy) ObserveResourceInQueueDuration(context.Context, string, time.Time)          {}
func (dummy) ObserveResourceProcessingDuration(context.Context, string, bool, time.Time) {}
func (dummy) RegisterResourceQueueLengthFunc(string, func(context.Context) int) (err error) {
	return nil
}

// recorder is a MetricsRecorder as a Recorder of the engine. What Kooper has no metric for is dropped.
type recorder struct{ MetricsRecorder }

func (recorder) ObserveInformer(string, func() informer.Health) (stop func()) { return func() {} }
func (recorder) ObserveController(string, func() engine.Stats) (stop func())  { return func() {} }
func (recorder) Skipped(string, engine.SkipReason)                            {}
func (recorder) ProblemDetected(string, engine.ProblemType)                   {}

// Triggered implements the engine's Recorder.
func (r recorder) Triggered(controller, _ string, cause engine.CauseType) {
	r.IncResourceEventQueued(context.Background(), controller, cause == engine.CauseRetry)
}

// RunEnded implements the engine's Recorder.
func (r recorder) RunEnded(controller string, run engine.RunRecord) {
	ctx, started := context.Background(), time.Now().Add(-run.Duration)
	r.ObserveResourceInQueueDuration(ctx, controller, started.Add(-run.Wait))
	r.ObserveResourceProcessingDuration(ctx, controller, !run.Outcome.Failed(), started)
}

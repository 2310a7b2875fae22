package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
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
var DummyMetricsRecorder = dummy(0) //nolint:gochecknoglobals // a variable of this type in Kooper

type dummy int

func (dummy) IncResourceEventQueued(context.Context, string, bool)                       {}
func (dummy) ObserveResourceInQueueDuration(context.Context, string, time.Time)          {}
func (dummy) ObserveResourceProcessingDuration(context.Context, string, bool, time.Time) {}
func (dummy) RegisterResourceQueueLengthFunc(string, func(context.Context) int) error    { return nil }

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
	if run.Outcome == engine.OutcomeGone { // no handler was called
		r.ObserveResourceInQueueDuration(ctx, controller, started.Add(-run.Wait))
	}
	r.ObserveResourceProcessingDuration(ctx, controller, !run.Outcome.Failed(), started)
}

// logHandler writes the log lines of the engine to a Kooper Logger.
type logHandler struct{ logger log.Logger }

// Enabled implements slog.Handler. The Logger decides, but nothing is formatted for log.Dummy.
func (h logHandler) Enabled(context.Context, slog.Level) bool {
	return h.logger != log.Logger(log.Dummy)
}

// Handle implements slog.Handler.
func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	logger := h.logger
	record.Attrs(func(attr slog.Attr) bool {
		logger = with(logger, attr)
		return true
	})
	switch {
	case record.Level >= slog.LevelError:
		logger.Errorf("%s", record.Message)
	case record.Level >= slog.LevelWarn:
		logger.Warningf("%s", record.Message)
	case record.Level >= slog.LevelInfo:
		logger.Infof("%s", record.Message)
	default:
		logger.Debugf("%s", record.Message)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{with(h.logger, attrs...)}
}

// with returns a Logger that adds attributes.
func with(logger log.Logger, attrs ...slog.Attr) log.Logger {
	kv := log.KV{}
	for _, attr := range attrs {
		add(kv, "", attr)
	}
	return logger.WithKV(kv)
}

// add adds an attribute to kv. Those of a group have its name before theirs: "run.id". The key of an object has
// Kooper's name.
func add(kv log.KV, group string, attr slog.Attr) {
	value := attr.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		name := group + attr.Key
		if name == "run.key" || name == "key" {
			name = "object-key"
		}
		kv[name] = value.Any()
		return
	}
	for _, member := range value.Group() {
		add(kv, group+attr.Key+".", member)
	}
}

// WithGroup implements slog.Handler. The engine uses no groups.
func (h logHandler) WithGroup(string) slog.Handler { return h }

// Package prometheus has the API and the metrics of Kooper v2's package metrics/prometheus, so that its dashboards and
// alerts work.
package prometheus

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
)

// Config configures a Recorder. Its zero value is valid.
type Config struct {
	// Registerer receives the metrics. Default: prometheus.DefaultRegisterer.
	Registerer prometheus.Registerer
	// InQueueBuckets are the buckets of kooper_controller_event_in_queue_duration_seconds, in seconds. Default: 12
	// from 0.01 to 300.
	InQueueBuckets []float64
	// ProcessingBuckets are the buckets of kooper_controller_processed_event_duration_seconds, in seconds. Default:
	// prometheus.DefBuckets.
	ProcessingBuckets []float64
}

// Recorder is a controller.MetricsRecorder.
type Recorder struct {
	registerer prometheus.Registerer
	queued     *prometheus.CounterVec
	waited     *prometheus.HistogramVec
	processed  *prometheus.HistogramVec
}

var _ controller.MetricsRecorder = &Recorder{}

// New returns a Recorder. It panics if the Registerer has other metrics of these names, as Kooper does.
func New(cfg Config) *Recorder {
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.DefaultRegisterer
	}
	if len(cfg.InQueueBuckets) == 0 {
		cfg.InQueueBuckets = []float64{.01, .05, .1, .25, .5, 1, 3, 10, 20, 60, 150, 300}
	}
	if len(cfg.ProcessingBuckets) == 0 {
		cfg.ProcessingBuckets = prometheus.DefBuckets
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	r := &Recorder{
		registerer: cfg.Registerer,
		queued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kooper_controller_queued_events_total", Help: "Objects that were added to the queue.",
		}, []string{"controller", "requeue"}),
		waited: histogram("kooper_controller_event_in_queue_duration_seconds",
			"How long objects were ready in the queue.", cfg.InQueueBuckets, "controller"),
		processed: histogram("kooper_controller_processed_event_duration_seconds",
			"How long handlers ran.", cfg.ProcessingBuckets, "controller", "success"),
	}
	cfg.Registerer.MustRegister(r.queued, r.waited, r.processed)
	return r
}

// IncResourceEventQueued implements controller.MetricsRecorder.
func (r Recorder) IncResourceEventQueued(_ context.Context, controller string, isRequeue bool) {
	r.queued.WithLabelValues(controller, strconv.FormatBool(isRequeue)).Inc()
}

// ObserveResourceInQueueDuration implements controller.MetricsRecorder.
func (r Recorder) ObserveResourceInQueueDuration(_ context.Context, controller string, queuedAt time.Time) {
	r.waited.WithLabelValues(controller).Observe(time.Since(queuedAt).Seconds())
}

// ObserveResourceProcessingDuration implements controller.MetricsRecorder.
func (r Recorder) ObserveResourceProcessingDuration(_ context.Context, controller string, success bool, at time.Time) {
	r.processed.WithLabelValues(controller, strconv.FormatBool(success)).Observe(time.Since(at).Seconds())
}

// RegisterResourceQueueLengthFunc implements controller.MetricsRecorder. A second controller of the same name is an
// error.
func (r Recorder) RegisterResourceQueueLengthFunc(controller string, f func(context.Context) int) error {
	return r.registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "kooper_controller_event_queue_length",
		Help:        "Length of the queue.",
		ConstLabels: prometheus.Labels{"controller": controller},
	}, func() float64 { return float64(f(context.Background())) }))
}

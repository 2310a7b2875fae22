// Package prometheus exposes the measurements of controllers and informers as Prometheus metrics.
//
// It has no global registration: set Config.Registerer and Config.Cluster. docs/reference/metrics.md lists the metrics.
package prometheus

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

// defaultNamespace is the prefix of each metric's name unless Config.Namespace is set.
const defaultNamespace = "evenkeel"

// Limits of native histograms: the bounds of neighboring buckets differ by 10 %, and a histogram
// with the maximum number of buckets is reset at most once an hour.
const (
	nativeBucketFactor     = 1.1
	nativeMaxBuckets       = 160
	nativeMinResetInterval = time.Hour
)

// defaultBuckets returns the default upper bounds of histogram buckets, in seconds: from 1 ms, which a handler
// without work does not exceed, to 10 min.
func defaultBuckets() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600}
}

// Config configures a Recorder. New copies it.
type Config struct {
	// Cluster makes the Recorder that of everything that works with the Cluster and is created afterwards: controllers,
	// informers, webhook servers, leader election, and with CompatibleNames its requests. A Cluster has one Recorder.
	// Default: only what is given the Recorder.
	Cluster *kube.Cluster
	// Registerer registers the metrics: prometheus.DefaultRegisterer, or the program's own registry. Use
	// prometheus.WrapRegistererWith to add labels to all metrics. Required.
	Registerer prometheus.Registerer
	// Namespace is the prefix of each metric's name, as in "evenkeel_controller_workers". The dashboard in
	// docs/dashboards expects the default. Default "evenkeel".
	Namespace string
	// DurationBuckets are the upper bounds of the buckets for the duration of runs, in seconds, increasing. Default:
	// 16 buckets from 1 ms to 10 min.
	DurationBuckets []float64
	// WaitBuckets are the upper bounds of the buckets for the wait in the queue and for the time that keys are held
	// back, in seconds, increasing. Default: as DurationBuckets.
	WaitBuckets []float64
	// NativeHistograms adds native histograms to the classic ones, for Prometheus servers
	// that scrape them. Default false.
	NativeHistograms bool
	// CompatibleNames adds metrics with the names, labels and buckets of client-go and controller-runtime, for
	// existing dashboards and alerts: workqueue_*, controller_runtime_*, certwatcher_*, rest_client_* and
	// leader_election_master_status (the last two need Cluster). Do not register those of client-go or
	// controller-runtime with the same Registerer. Default false.
	CompatibleNames bool
}

// Recorder implements controller.Recorder, informer.Recorder and webhook.Recorder, and exposes their measurements to
// Prometheus. It is safe for concurrent use.
//
// Guarantees:
//   - One Recorder serves any number of controllers and informers. Recorders on different registries are
//     independent.
//   - Sizes, states and the counters of informers are read at each scrape. They disappear when the controller or
//     informer stops, and the Recorder keeps no reference to it. An informer that is started again continues its
//     counters.
//   - Counters and histograms of controllers remain after a stop, so that a controller that starts again, for
//     instance because it leads again, continues them. Label values come from small fixed sets, with three
//     exceptions: at most 50 sources and 20 error classes of the user per controller, later ones count as
//     "other"; and controller names, which the program must limit.
//   - Controllers with the same name share their series. Sizes, counters and histograms are summed. The oldest
//     wait is the longest one, and failing-since is the earliest one. For informers with the same name sizes and
//     counters are summed, so that the stop of one looks like a counter reset. They are synced if all are
//     synced, and failing or degraded if one is. Staleness, lag and last event are those of the worst one.
//   - Histograms of run durations and queue waits have exemplars with label trace_id if runs have a trace, about
//     one per second and bucket. Prometheus reads exemplars only in the OpenMetrics format
//     (promhttp.HandlerOpts.EnableOpenMetrics).
type Recorder struct {
	// Immutable after New.
	vectors vectors
	gauges  gauges
	compat  *compatible // nil unless Config.CompatibleNames

	controllers  observations[controller.Stats]
	informers    observations[informer.Health]
	electors     observations[leader.Status]
	certificates observations[certificate]
	byController *lookup[*controllerMetrics] // by controller
}

var _ controller.Recorder = (*Recorder)(nil)

// New returns a Recorder and registers its metrics.
//
// Errors: all mistakes in config; metrics with the same names that are registered already. Then New registers
// nothing.
func New(config Config) (*Recorder, error) {
	config.Namespace = cmp.Or(config.Namespace, defaultNamespace)
	config.DurationBuckets = bucketsOrDefault(config.DurationBuckets, defaultBuckets())
	config.WaitBuckets = bucketsOrDefault(config.WaitBuckets, defaultBuckets())
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("new Prometheus recorder: %w", err)
	}
	r := &Recorder{vectors: newVectors(config), gauges: newGauges(config)}
	if config.CompatibleNames {
		r.compat = newCompatible(config.NativeHistograms)
	}
	r.byController = newLookup[*controllerMetrics, string](anyName, func(name string) *controllerMetrics {
		m := r.vectors.newControllerMetrics(name)
		if r.compat != nil {
			m.compat = r.compat.newController(name)
		}
		return m
	})
	// All metrics are in one collector, so that the registration succeeds or fails as a whole.
	if err := config.Registerer.Register((*collector)(r)); err != nil {
		return nil, fmt.Errorf("new Prometheus recorder: register the metrics %s_...: %w: "+
			"use one Recorder for all controllers, or another Registerer or Namespace for each", config.Namespace, err)
	}
	if config.Cluster != nil && !apiobject.ObserversOf(config.Cluster).SetMetrics(r, r.wrapTransport) {
		config.Registerer.Unregister((*collector)(r))
		return nil, errors.New("new Prometheus recorder: the Cluster has another Recorder: use that one (or the " +
			"transport of its HTTPClient was replaced)")
	}
	return r, nil
}

// ObserveController implements controller.Recorder. stop waits for a scrape that is
// reading stats.
func (r *Recorder) ObserveController(name string, stats func() controller.Stats) (stop func()) {
	r.byController.get(name) // creates the counters, so that they are exposed as 0 from the start
	return r.controllers.add(name, stats)
}

// ObserveInformer implements informer.Recorder. stop waits for a scrape that is reading
// health.
func (r *Recorder) ObserveInformer(name string, health func() informer.Health) (stop func()) {
	return r.informers.add(name, health)
}

// ObserveLeadership exposes leader_election_master_status if Config.CompatibleNames is set, otherwise it does nothing.
// An Elector of Config.Cluster calls it. The Recorder may call status at any time until stop is called; stop waits for
// a scrape that is reading it.
func (r *Recorder) ObserveLeadership(status func() leader.Status) (stop func()) {
	return r.electors.add("", status)
}

// WebhookReviewed implements webhook.Recorder.
func (r *Recorder) WebhookReviewed(name, result string, duration time.Duration) {
	r.vectors.reviews.WithLabelValues(label(name), label(result)).Observe(duration.Seconds())
}

// ObserveCertificate implements webhook.Recorder. stop waits for a scrape that calls a function.
func (r *Recorder) ObserveCertificate(
	server string, expiry func() time.Time, reads func() (all, failed uint64),
) (stop func()) {
	return r.certificates.add(server, func() certificate {
		all, failed := reads()
		return certificate{end: expiry(), reads: all, failedReads: failed}
	})
}

// Triggered implements controller.Recorder.
func (r *Recorder) Triggered(name, source string, cause controller.CauseType) {
	m := r.byController.get(name)
	m.triggers.get(source).get(string(cause)).Inc()
	if m.compat != nil {
		m.compat.countTrigger(cause)
	}
}

// Skipped implements controller.Recorder.
func (r *Recorder) Skipped(name string, why controller.SkipReason) {
	r.byController.get(name).skipped.get(string(why)).Inc()
}

// ProblemDetected implements controller.Recorder.
func (r *Recorder) ProblemDetected(name string, problem controller.ProblemType) {
	r.byController.get(name).problems.get(string(problem)).Inc()
}

// RunEnded implements controller.Recorder.
func (r *Recorder) RunEnded(name string, run controller.RunRecord) {
	m := r.byController.get(name)
	m.countRun(run)
	if m.compat != nil {
		m.compat.countRun(run)
	}
}

func (c Config) name(rest string) string { return c.Namespace + "_" + rest }

func (c Config) histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	if c.NativeHistograms {
		opts.NativeHistogramBucketFactor = nativeBucketFactor
		opts.NativeHistogramMaxBucketNumber = nativeMaxBuckets
		opts.NativeHistogramMinResetDuration = nativeMinResetInterval
	}
	return opts
}

// validate returns all mistakes in a Config with defaults set. It must find every value at which the client library
// would panic.
func (c Config) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Registerer == nil, "Registerer is required: prometheus.DefaultRegisterer or a "+
		"prometheus.NewRegistry()")
	// Newer Prometheus servers accept any name, but queries must quote such names.
	mistakes.AddIf(!regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(c.Namespace), "Namespace is %q: must "+
		"consist of letters, digits and underscores, and must not begin with a digit", c.Namespace)
	mistakes.Join(
		validateBuckets("DurationBuckets", c.DurationBuckets),
		validateBuckets("WaitBuckets", c.WaitBuckets),
	)
	return mistakes.Err()
}

func validateBuckets(field string, buckets []float64) error {
	for i, bound := range buckets {
		if math.IsNaN(bound) {
			return fmt.Errorf("%s[%d] is not a number", field, i)
		}
		if i > 0 && bound <= buckets[i-1] {
			return fmt.Errorf("%s[%d] is %g, after %g: they must increase", field, i, bound, buckets[i-1])
		}
	}
	return nil
}

func bucketsOrDefault(buckets, fallback []float64) []float64 {
	if len(buckets) == 0 {
		return fallback
	}
	return slices.Clone(buckets)
}

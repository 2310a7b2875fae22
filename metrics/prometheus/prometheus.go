// Package prometheus exposes what controllers and informers measure as Prometheus metrics.
//
// It registers nowhere by itself: give Config a registry, and the Recorder to
// controller.Config.Metrics and informer.Config.Metrics. docs/metrics.md lists the metrics.
package prometheus

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// DefaultNamespace begins the name of each metric unless Config.Namespace is set.
const DefaultNamespace = "evenkeel"

// Limits of native histograms: neighbouring buckets differ by a tenth, and a histogram
// that has grown to its limit is reset at most once an hour.
const (
	nativeBucketFactor     = 1.1
	nativeMaxBuckets       = 160
	nativeMinResetInterval = time.Hour
)

// DefaultBuckets returns the upper bounds, in seconds, that histograms have unless Config
// sets others: from 1 ms, which a handler with nothing to do stays under, to 10 min.
func DefaultBuckets() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600}
}

// Config says where and how the metrics appear. It is taken by value.
type Config struct {
	// Registerer is where the metrics are registered. Required:
	// prometheus.DefaultRegisterer, or a registry of the program's own. Labels that all of
	// them should have are added with prometheus.WrapRegistererWith.
	Registerer prometheus.Registerer
	// Namespace begins the name of each metric, as in "evenkeel_controller_workers". The
	// dashboard in docs/dashboards expects the default. Default "evenkeel".
	Namespace string
	// DurationBuckets are the upper bounds of the duration of runs, in seconds,
	// increasing. Default DefaultBuckets().
	DurationBuckets []float64
	// WaitBuckets are the upper bounds of the wait in the queue, in seconds, increasing.
	// Default DefaultBuckets().
	WaitBuckets []float64
	// NativeHistograms adds native histograms to the classic ones, for Prometheus servers
	// that scrape them. Default false.
	NativeHistograms bool
}

// Recorder is a controller.Recorder, and thereby an informer.Recorder, that exposes what
// it receives to Prometheus. It is safe for concurrent use.
//
// Guarantees:
//   - One Recorder serves any number of controllers and informers. Recorders on different
//     registries know nothing of each other.
//   - Sizes and states, and the counters of informers, are read when Prometheus scrapes. They
//     are gone when the controller or informer has stopped: nothing of it is read, and nothing
//     kept, after that. An informer that is run again goes on counting where it was.
//   - Counters and histograms of controllers stay, so that one that works again, for instance
//     because it leads again, goes on counting. Their labels are the controller's name and
//     small fixed sets; a program must not make up names without end.
//   - Controllers of the same name are one to Prometheus: sizes, counts and histograms are
//     summed. Of informers of the same name, sizes and counters are summed (so that one
//     of them which stops looks like a counter that was reset); they are synced when all are,
//     failing or degraded when one is, and their last event is that of the one that has been
//     without events for longest.
type Recorder struct {
	// Immutable after New.
	queued    *prometheus.CounterVec
	retries   *prometheus.CounterVec
	wait      *prometheus.HistogramVec
	durations *prometheus.HistogramVec
	gauges    gauges

	controllers observations[controller.Stats]
	informers   observations[informer.Health]

	// tallies has what Queued and Handled need, by controller. Both are on the way of each
	// run, so they read it without a lock; who adds to it copies it, which happens once for
	// each name.
	tallies atomic.Pointer[map[string]*tally]
	mu      sync.Mutex // held while tallies is replaced
}

var _ controller.Recorder = (*Recorder)(nil)

// New makes a Recorder and registers its metrics.
//
// Errors: a mistake in config, all of them at once; metrics of the same names that are
// registered already, in which case nothing is registered.
func New(config Config) (*Recorder, error) {
	config.Namespace = cmp.Or(config.Namespace, DefaultNamespace)
	config.DurationBuckets = bucketsOr(config.DurationBuckets, DefaultBuckets())
	config.WaitBuckets = bucketsOr(config.WaitBuckets, DefaultBuckets())
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("new Prometheus recorder: %w", err)
	}
	r := &Recorder{
		queued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: config.name("controller_queued_total"),
			Help: "Keys put into the queue, also those that merged with one that was there, by cause.",
		}, []string{"controller", "cause"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: config.name("controller_retries_total"),
			Help: "Runs of keys whose run before had failed.",
		}, []string{"controller"}),
		wait: prometheus.NewHistogramVec(config.histogram("controller_queue_wait_seconds",
			"How long keys were due before a worker took them.", config.WaitBuckets), []string{"controller"}),
		durations: prometheus.NewHistogramVec(config.histogram("controller_handle_seconds",
			"How long runs took, by outcome. The count is the number of runs.", config.DurationBuckets), []string{"controller", "outcome"}),
		gauges: newGauges(config),
	}
	r.tallies.Store(&map[string]*tally{})
	// One collector for all: registering it succeeds or fails as a whole.
	if err := config.Registerer.Register((*collector)(r)); err != nil {
		return nil, fmt.Errorf("new Prometheus recorder: register the metrics %s_...: %w: "+
			"use one Recorder for all controllers, or give each a Registerer or a Namespace of its own", config.Namespace, err)
	}
	return r, nil
}

// ObserveController implements controller.Recorder. stop waits for a scrape that is
// reading stats.
func (r *Recorder) ObserveController(name string, stats func() controller.Stats) (stop func()) {
	r.tallyOf(name) // so that the counters show their zeros from the start
	return r.controllers.add(name, stats)
}

// ObserveInformer implements informer.Recorder. stop waits for a scrape that is reading
// health.
func (r *Recorder) ObserveInformer(name string, health func() informer.Health) (stop func()) {
	return r.informers.add(name, health)
}

// Queued implements controller.Recorder.
func (r *Recorder) Queued(name string, cause workqueue.CauseType) {
	r.tallyOf(name).countQueued(cause)
}

// Handled implements controller.Recorder.
func (r *Recorder) Handled(name string, run controller.Handled) {
	r.tallyOf(name).countRun(run)
}

func (c Config) name(rest string) string { return c.Namespace + "_" + rest }

func (c Config) histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	opts := prometheus.HistogramOpts{Name: c.name(name), Help: help, Buckets: buckets}
	if c.NativeHistograms {
		opts.NativeHistogramBucketFactor = nativeBucketFactor
		opts.NativeHistogramMaxBucketNumber = nativeMaxBuckets
		opts.NativeHistogramMinResetDuration = nativeMinResetInterval
	}
	return opts
}

// validate names every mistake in a config with its defaults set. What the client library
// would panic about is among them.
func (c Config) validate() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Registerer == nil {
		mistake("Registerer is required: prometheus.DefaultRegisterer or a prometheus.NewRegistry()")
	}
	// Newer Prometheus servers take any name, but each query would have to quote it.
	if !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(c.Namespace) {
		mistake("Namespace is %q: it must be letters, digits and underscores, and not begin with a digit", c.Namespace)
	}
	return errors.Join(append(errs,
		validateBuckets("DurationBuckets", c.DurationBuckets),
		validateBuckets("WaitBuckets", c.WaitBuckets))...)
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

func bucketsOr(buckets, fallback []float64) []float64 {
	if len(buckets) == 0 {
		return fallback
	}
	return slices.Clone(buckets)
}

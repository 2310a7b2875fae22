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
	// WaitBuckets are the upper bounds of the wait in the queue, and of how long keys are
	// held back, in seconds, increasing. Default DefaultBuckets().
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
//     because it leads again, goes on counting. Their labels are small fixed sets; the names
//     of sources and of classes of errors, of which those after the first 50 and 20 of a
//     user's own count as "other"; and the controller's name: a program must not make up
//     names of controllers without end.
//   - Controllers of the same name are one to Prometheus: sizes, counts and histograms are
//     summed; the oldest wait is the longest, and they have been failing since the first began
//     to. Of informers of the same name, sizes and counters are summed (so that one of them
//     which stops looks like a counter that was reset); they are synced when all are, failing
//     or degraded when one is; and staleness, lag and last event are those of the one that is
//     worst.
//   - Durations of runs and waits in the queue have exemplars with the label trace_id, where
//     runs have a trace: about one a second for each bucket. Prometheus gets them only in
//     OpenMetrics (promhttp.HandlerOpts.EnableOpenMetrics).
type Recorder struct {
	// Immutable after New.
	vectors vectors
	gauges  gauges

	controllers observations[controller.Stats]
	informers   observations[informer.Health]
	tallies     *lookup[*tally] // by controller
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
	r := &Recorder{vectors: newVectors(config), gauges: newGauges(config)}
	r.tallies = newLookup[*tally, string](anyName, r.vectors.newTally)
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
	r.tallies.of(name) // so that the counters show their zeros from the start
	return r.controllers.add(name, stats)
}

// ObserveInformer implements informer.Recorder. stop waits for a scrape that is reading
// health.
func (r *Recorder) ObserveInformer(name string, health func() informer.Health) (stop func()) {
	return r.informers.add(name, health)
}

// Triggered implements controller.Recorder.
func (r *Recorder) Triggered(name, source string, cause workqueue.CauseType) {
	r.tallies.of(name).triggers.of(source).of(string(cause)).Inc()
}

// Skipped implements controller.Recorder.
func (r *Recorder) Skipped(name string, why controller.SkipReason) {
	r.tallies.of(name).skipped.of(string(why)).Inc()
}

// Troubled implements controller.Recorder.
func (r *Recorder) Troubled(name string, trouble controller.TroubleType) {
	r.tallies.of(name).troubles.of(string(trouble)).Inc()
}

// Handled implements controller.Recorder.
func (r *Recorder) Handled(name string, run controller.Handled) {
	r.tallies.of(name).countRun(run)
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

package prometheus

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
)

// Limits for the label values of a user for each controller. Further values share the label
// "other".
const (
	maxSources = 50
	maxClasses = 20
)

// controllerMetrics contains the counters and histograms of one controller.
type controllerMetrics struct {
	triggers *lookup[*lookup[prometheus.Counter]] // by source, by type
	skipped  *lookup[prometheus.Counter]          // by reason
	problems *lookup[prometheus.Counter]          // by type
	// By the type of the first cause.
	runs, runSeconds *lookup[prometheus.Counter]

	// durations creates a histogram when its outcome first occurs, because each histogram has about twenty
	// series and most controllers see few outcomes.
	durations *lookup[*histogram]
	wait      *histogram
	hold      prometheus.Observer
	retries   prometheus.Counter
	failures  *lookup[prometheus.Counter] // by class
	writes    prometheus.Counter
	compat    *compatibleController // nil unless Config.CompatibleNames
	decode    prometheus.Counter
}

func (v vectors) newControllerMetrics(name string) *controllerMetrics {
	newCounter := func(counters *prometheus.CounterVec) func(string) prometheus.Counter {
		return func(value string) prometheus.Counter { return counters.WithLabelValues(name, value) }
	}
	classes, causes, skips, problems := classes(), causeTypes(), skipReasons(), problemTypes()
	return &controllerMetrics{
		triggers: newLookup(upTo(len(builtinSources())+maxSources), func(source string) *lookup[prometheus.Counter] {
			return v.newTriggers(name, source)
		}, builtinSources()...),
		skipped:    newLookup(oneOf(skips), newCounter(v.skipped), skips...),
		problems:   newLookup(oneOf(problems), newCounter(v.problems), problems...),
		runs:       newLookup(oneOf(causes), newCounter(v.runs), causes...),
		runSeconds: newLookup(oneOf(causes), newCounter(v.runSeconds), causes...),
		// These two outcomes exist from the start: a rate over a series that begins with its first
		// failure does not include that failure.
		durations: newLookup(oneOf(outcomes()), func(outcome string) *histogram {
			return newHistogram(v.durations.WithLabelValues(name, outcome), v.durationBuckets)
		}, controller.OutcomeSuccess, controller.OutcomeError),
		wait:     newHistogram(v.wait.WithLabelValues(name), v.waitBuckets),
		hold:     v.hold.WithLabelValues(name),
		retries:  v.retries.WithLabelValues(name),
		failures: newLookup(upTo(len(classes)+maxClasses), newCounter(v.failures), classes...),
		writes:   v.writes.WithLabelValues(name),
		decode:   v.decode.WithLabelValues(name),
	}
}

// builtinSources returns the sources that every controller has.
func builtinSources() []string { return []string{controller.SourceSelf, controller.SourceLoop} }

// newTriggers returns the counters of a source by type. Types that every controller has exist from the start.
func (v vectors) newTriggers(name, source string) *lookup[prometheus.Counter] {
	var first []controller.CauseType
	switch source {
	case controller.SourceSelf:
		first = []controller.CauseType{
			controller.CauseListed, controller.CauseAdded, controller.CauseUpdated,
			controller.CauseDeleted,
		}
	case controller.SourceLoop:
		first = []controller.CauseType{
			controller.CauseResync, controller.CauseRetry, controller.CauseRequeue,
			controller.CauseTimer,
		}
	}
	return newLookup(oneOf(causeTypes()), func(cause string) prometheus.Counter {
		return v.triggers.WithLabelValues(name, source, cause)
	}, first...)
}

func (t *controllerMetrics) countRun(run controller.RunRecord) {
	t.durations.get(string(run.Outcome)).observe(run.Duration, run.TraceID)
	cause := string(run.Causes.FirstType())
	t.runs.get(cause).Inc()
	t.runSeconds.get(cause).Add(run.Duration.Seconds())
	t.wait.observe(run.Wait, run.TraceID)
	if run.Attempt > 0 {
		t.retries.Inc()
	}
	if run.Class != "" {
		t.failures.get(string(run.Class)).Inc()
	}
	if run.Held > 0 {
		t.hold.Observe(run.Held.Seconds())
	}
	if run.Writes > 0 {
		t.writes.Add(float64(run.Writes))
	}
	if run.Decode > 0 {
		t.decode.Add(run.Decode.Seconds())
	}
}

// label returns name as a valid label value. The client library panics for invalid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

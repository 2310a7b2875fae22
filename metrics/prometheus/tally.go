package prometheus

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// How many names of a user's own get series of their own, for each controller. The others
// share "other".
const (
	maxSources = 50
	maxClasses = 20
)

// tally is one controller's counters and histograms.
type tally struct {
	triggers *lookup[*lookup[prometheus.Counter]] // by source, by type
	skipped  *lookup[prometheus.Counter]          // by reason
	troubles *lookup[prometheus.Counter]          // by type

	// durations makes a histogram when its outcome first happens. Most controllers see
	// few of the outcomes, and each histogram is some twenty series.
	durations *lookup[*histogram]
	wait      *histogram
	hold      prometheus.Observer
	retries   prometheus.Counter
	failures  *lookup[prometheus.Counter] // by class
	writes    prometheus.Counter
	decode    prometheus.Counter
}

func (v vectors) newTally(name string) *tally {
	of := func(counters *prometheus.CounterVec) func(string) prometheus.Counter {
		return func(value string) prometheus.Counter { return counters.WithLabelValues(name, value) }
	}
	classes := retry.Classes()
	return &tally{
		triggers: newLookup(upTo(len(ownSources())+maxSources), func(source string) *lookup[prometheus.Counter] {
			return v.triggersOf(name, source)
		}, ownSources()...),
		skipped:  newLookup(oneOf(controller.SkipReasons()), of(v.skipped), controller.SkipReasons()...),
		troubles: newLookup(oneOf(controller.TroubleTypes()), of(v.troubles), controller.TroubleTypes()...),
		// These two are there from the start: a rate over a series that begins with its first
		// failure does not show that failure.
		durations: newLookup(oneOf(controller.Outcomes()), func(outcome string) *histogram {
			return newHistogram(v.durations.WithLabelValues(name, outcome), v.durationBuckets)
		}, controller.OutcomeSuccess, controller.OutcomeError),
		wait:     newHistogram(v.wait.WithLabelValues(name), v.waitBuckets),
		hold:     v.hold.WithLabelValues(name),
		retries:  v.retries.WithLabelValues(name),
		failures: newLookup(upTo(len(classes)+maxClasses), of(v.failures), classes...),
		writes:   v.writes.WithLabelValues(name),
		decode:   v.decode.WithLabelValues(name),
	}
}

// ownSources are the sources that every controller has.
func ownSources() []string { return []string{workqueue.SourceSelf, workqueue.SourceLoop} }

// triggersOf returns a source's counters by type. Those that every controller can see are there
// from the start.
func (v vectors) triggersOf(name, source string) *lookup[prometheus.Counter] {
	var first []workqueue.CauseType
	switch source {
	case workqueue.SourceSelf:
		first = []workqueue.CauseType{workqueue.CauseListed, workqueue.CauseAdded, workqueue.CauseUpdated, workqueue.CauseDeleted}
	case workqueue.SourceLoop:
		first = []workqueue.CauseType{workqueue.CauseResync, workqueue.CauseRetry, workqueue.CauseRequeue, workqueue.CauseTimer}
	}
	return newLookup(oneOf(workqueue.CauseTypes()), func(cause string) prometheus.Counter {
		return v.triggers.WithLabelValues(name, source, cause)
	}, first...)
}

func (t *tally) countRun(run controller.Handled) {
	t.durations.of(string(run.Outcome)).observe(run.Duration, run.TraceID)
	t.wait.observe(run.Wait, run.TraceID)
	if run.Attempt > 0 {
		t.retries.Inc()
	}
	if run.Class != "" {
		t.failures.of(string(run.Class)).Inc()
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

// label makes a name fit for a label: the client library panics at invalid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

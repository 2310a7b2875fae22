package prometheus

import (
	"maps"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// otherValue is the label of a cause or an outcome that this package does not know, so
// that no caller can make up series without end.
const otherValue = "other"

// tally is one controller's counters and histograms, looked up once: finding a series by
// its labels costs more than counting.
type tally struct {
	queued  map[workqueue.CauseType]prometheus.Counter
	other   func() prometheus.Counter
	retries prometheus.Counter
	wait    prometheus.Observer
	// durations makes a histogram when its outcome first happens. Most controllers see
	// few of the outcomes, and each histogram is some twenty series.
	durations     map[controller.Outcome]func() prometheus.Observer
	otherDuration func() prometheus.Observer
}

func (r *Recorder) tallyOf(name string) *tally {
	if t, ok := (*r.tallies.Load())[name]; ok {
		return t
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := *r.tallies.Load()
	if t, ok := known[name]; ok {
		return t
	}
	t := r.newTally(label(name))
	next := maps.Clone(known)
	next[name] = t
	r.tallies.Store(&next)
	return t
}

func (r *Recorder) newTally(name string) *tally {
	duration := func(outcome string) func() prometheus.Observer {
		return sync.OnceValue(func() prometheus.Observer { return r.durations.WithLabelValues(name, outcome) })
	}
	t := &tally{
		queued:        map[workqueue.CauseType]prometheus.Counter{},
		other:         sync.OnceValue(func() prometheus.Counter { return r.queued.WithLabelValues(name, otherValue) }),
		retries:       r.retries.WithLabelValues(name),
		wait:          r.wait.WithLabelValues(name),
		durations:     map[controller.Outcome]func() prometheus.Observer{},
		otherDuration: duration(otherValue),
	}
	for _, cause := range workqueue.CauseTypes() {
		t.queued[cause] = r.queued.WithLabelValues(name, string(cause))
	}
	for _, outcome := range controller.Outcomes() {
		t.durations[outcome] = duration(string(outcome))
	}
	// These two are there from the start: a rate over a series that begins with its first
	// failure does not show that failure.
	t.durations[controller.OutcomeSuccess]()
	t.durations[controller.OutcomeError]()
	return t
}

func (t *tally) countQueued(cause workqueue.CauseType) {
	counter, known := t.queued[cause]
	if !known {
		counter = t.other()
	}
	counter.Inc()
}

func (t *tally) countRun(run controller.Handled) {
	duration, known := t.durations[run.Outcome]
	if !known {
		duration = t.otherDuration
	}
	duration().Observe(run.Duration.Seconds())
	t.wait.Observe(run.Wait.Seconds())
	if run.Attempt > 0 {
		t.retries.Inc()
	}
}

// label makes a name fit for a label: the client library panics at invalid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

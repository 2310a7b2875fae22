package prometheus

import (
	"sort"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// traceLabel is the exemplars' label, by the name that Grafana looks for.
	traceLabel = "trace_id"
	// exemplarInterval is how often each bucket takes an exemplar. Each replaces the one
	// before, and is only seen if a scrape comes first; making one allocates.
	exemplarInterval = time.Second
)

// histogram is one series of a histogram, with the trace of a run that fell into each bucket.
type histogram struct {
	series prometheus.Observer
	traced prometheus.ExemplarObserver // the same, which histograms of the client library are
	bounds []float64
	since  time.Time
	due    []atomic.Int64 // of each bucket: when it takes its next exemplar, in ns after since
}

func newHistogram(series prometheus.Observer, bounds []float64) *histogram {
	return &histogram{
		series: series, traced: series.(prometheus.ExemplarObserver),
		bounds: bounds, since: time.Now(), due: make([]atomic.Int64, len(bounds)+1),
	}
}

// observe counts a duration of a run, which belongs to the trace of that ID, if it is not empty.
func (h *histogram) observe(d time.Duration, trace string) {
	seconds := d.Seconds()
	if trace == "" || !isExemplar(trace) || !h.takesExemplar(seconds) {
		h.series.Observe(seconds)
		return
	}
	h.traced.ObserveWithExemplar(seconds, prometheus.Labels{traceLabel: trace})
}

// isExemplar reports whether the client library accepts an ID; it panics at others.
func isExemplar(trace string) bool {
	return len(traceLabel)+len(trace) <= prometheus.ExemplarMaxRunes && utf8.ValidString(trace)
}

// takesExemplar reports, once in exemplarInterval, that the bucket of a value is to have an
// exemplar.
func (h *histogram) takesExemplar(seconds float64) bool {
	due := &h.due[sort.SearchFloat64s(h.bounds, seconds)]
	now, at := int64(time.Since(h.since)), due.Load()
	return now >= at && due.CompareAndSwap(at, now+int64(exemplarInterval))
}

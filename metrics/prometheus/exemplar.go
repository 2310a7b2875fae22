package prometheus

import (
	"sort"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// traceLabel is the label of exemplars that Grafana expects.
	traceLabel = "trace_id"
	// exemplarInterval is the minimum time between two exemplars of a bucket. Creating one allocates, and only
	// the last one before a scrape is visible.
	exemplarInterval = time.Second
)

// histogram is one series of a histogram, with exemplars for its buckets.
type histogram struct {
	series prometheus.Observer
	traced prometheus.ExemplarObserver // the same value: the client library's histograms implement both
	bounds []float64
	since  time.Time
	due    []atomic.Int64 // by bucket: the time of its next exemplar, in ns after since
}

func newHistogram(series prometheus.Observer, bounds []float64) *histogram {
	return &histogram{
		series: series, traced: series.(prometheus.ExemplarObserver),
		bounds: bounds, since: time.Now(), due: make([]atomic.Int64, len(bounds)+1),
	}
}

// observe adds a duration. If trace, a trace ID, is not empty, it becomes the bucket's exemplar at most once in
// exemplarInterval.
func (h *histogram) observe(d time.Duration, trace string) {
	seconds := d.Seconds()
	if trace == "" || !isValidTrace(trace) || !h.claimExemplar(seconds) {
		h.series.Observe(seconds)
		return
	}
	h.traced.ObserveWithExemplar(seconds, prometheus.Labels{traceLabel: trace})
}

// isValidTrace reports whether the client library accepts an ID as a label. It panics for others.
func isValidTrace(trace string) bool {
	return len(traceLabel)+len(trace) <= prometheus.ExemplarMaxRunes && utf8.ValidString(trace)
}

// claimExemplar reports whether the bucket of the value may take an exemplar now. It returns true at most once in
// exemplarInterval for each bucket.
func (h *histogram) claimExemplar(seconds float64) bool {
	due := &h.due[sort.SearchFloat64s(h.bounds, seconds)]
	now, next := int64(time.Since(h.since)), due.Load()
	return now >= next && due.CompareAndSwap(next, now+int64(exemplarInterval))
}

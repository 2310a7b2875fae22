package prometheus

import "github.com/prometheus/client_golang/prometheus"

// vectors are what is counted as it happens, for all controllers.
type vectors struct {
	triggers, skipped, troubles       *prometheus.CounterVec
	retries, failures, writes, decode *prometheus.CounterVec
	durations, wait, hold             *prometheus.HistogramVec
	durationBuckets, waitBuckets      []float64
}

func newVectors(c Config) vectors {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: c.name(name), Help: help}, append([]string{"controller"}, labels...))
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(c.histogram(name, help, buckets), append([]string{"controller"}, labels...))
	}
	return vectors{
		triggers: counter("controller_triggers_total",
			"Times that something put a key into the queue, also when the key was there already.", "source", "type"),
		skipped: counter("controller_skipped_total",
			"Changes that did not put their key into the queue.", "reason"),
		troubles: counter("controller_troubles_total",
			"Episodes of trouble that have begun.", "type"),
		retries: counter("controller_retries_total",
			"Runs of keys whose run before had failed."),
		failures: counter("controller_failures_total",
			"Runs that failed, by the class of their error.", "class"),
		writes: counter("controller_writes_total",
			"Writes of runs that the API server has done and that changed something."),
		decode: counter("controller_decode_seconds_total",
			"Time that runs spent on reading their object from the cache."),
		durations: histogram("controller_handle_seconds",
			"How long runs took, by outcome. The count is the number of runs.", c.DurationBuckets, "outcome"),
		wait: histogram("controller_queue_wait_seconds",
			"How long keys were due before a worker took them.", c.WaitBuckets),
		hold: histogram("controller_hold_seconds",
			"How long keys were held back after a worker could have run them, of those that were: a write is not in the cache yet, or a hot loop is slowed.", c.WaitBuckets),
		durationBuckets: c.DurationBuckets,
		waitBuckets:     c.WaitBuckets,
	}
}

// collectors returns each of the vectors.
func (v vectors) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		v.triggers, v.skipped, v.troubles, v.retries, v.failures, v.writes, v.decode,
		v.durations, v.wait, v.hold,
	}
}

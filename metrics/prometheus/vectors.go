package prometheus

import "github.com/prometheus/client_golang/prometheus"

// vectors contains the metrics that are counted at each event, for all controllers.
type vectors struct {
	triggers, skipped, problems       *prometheus.CounterVec
	runs, runSeconds                  *prometheus.CounterVec
	retries, failures, writes, decode *prometheus.CounterVec
	durations, wait, hold             *prometheus.HistogramVec
	reviews                           *prometheus.HistogramVec // by webhook and result
	durationBuckets, waitBuckets      []float64

	all []prometheus.Collector
}

func newVectors(c Config) vectors {
	var made vectorList
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return made.counter(c.name(name), help, append([]string{"controller"}, labels...))
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return made.histogram(c.histogram(c.name(name), help, buckets), append([]string{"controller"}, labels...))
	}
	v := vectors{
		triggers: counter("controller_triggers_total",
			"Additions of a key to the queue, also if the queue contained the key already.", "source", "type"),
		skipped: counter("controller_skipped_total",
			"Changes that did not add their key to the queue.", "reason"),
		problems: counter("controller_problems_total",
			"Detected problems.", "type"),
		runs: counter("controller_runs_total",
			"Runs by the type of their first cause.", "type"),
		runSeconds: counter("controller_run_seconds_total",
			"Duration of runs by the type of their first cause.", "type"),
		retries: counter("controller_retries_total",
			"Runs after a failed run of the same key."),
		failures: counter("controller_failures_total",
			"Failed runs by the class of their error.", "class"),
		writes: counter("controller_writes_total",
			"Successful writes of runs that changed an object."),
		decode: counter("controller_decode_seconds_total",
			"Time that runs spent reading their object from the cache."),
		durations: histogram("controller_handle_seconds",
			"Duration of runs by outcome. The count is the number of runs.", c.DurationBuckets, "outcome"),
		wait: histogram("controller_queue_wait_seconds",
			"Time that keys were ready before a worker processed them.", c.WaitBuckets),
		hold: histogram("controller_hold_seconds",
			"Time that held-back keys were held back although a worker was free: a write was not in the cache yet, a "+
				"hot loop was slowed down, or an earlier process ended while it handled them.", c.WaitBuckets),
		reviews: made.histogram(c.histogram(c.name("webhook_review_seconds"),
			"Duration of webhook reviews by result. The count is the number of reviews.", c.DurationBuckets),
			[]string{"webhook", "result"}),
		durationBuckets: c.DurationBuckets,
		waitBuckets:     c.WaitBuckets,
	}
	v.all = made
	return v
}

// vectorList makes vectors and contains them.
type vectorList []prometheus.Collector

func (l *vectorList) counter(name, help string, labels []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	*l = append(*l, v)
	return v
}

func (l *vectorList) histogram(opts prometheus.HistogramOpts, labels []string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(opts, labels)
	*l = append(*l, v)
	return v
}

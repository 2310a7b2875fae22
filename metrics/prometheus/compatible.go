package prometheus

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/leader"
)

// compatible contains metrics with the names, labels and buckets of client-go (k8s.io/component-base) and
// controller-runtime.
type compatible struct {
	adds, queueRetries                              *prometheus.CounterVec
	queueWait, work                                 *prometheus.HistogramVec
	reconciles, errors, terminals, panics, timeouts *prometheus.CounterVec
	reconcileTime                                   *prometheus.HistogramVec

	requests compatibleRequests
	hooks    compatibleHooks

	all            []prometheus.Collector
	queue, workers []gauge[controller.Stats] // with the labels name and controller, and controller
	leads          *prometheus.Desc
	// Reads of certificates.
	reads, failedReads *prometheus.Desc
}

func newCompatible(native bool) *compatible {
	var made vectorList
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return made.counter(name, help, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return made.histogram(Config{NativeHistograms: native}.histogram(name, help, buckets), labels)
	}
	queueBuckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	c := &compatible{
		adds: counter("workqueue_adds_total",
			"Additions of a key to the queue, also if the queue contained the key already.", "name", "controller"),
		queueRetries: counter("workqueue_retries_total",
			"Retries and requeues of keys.", "name", "controller"),
		queueWait: histogram("workqueue_queue_duration_seconds",
			"Time that keys were ready before a worker processed them.", queueBuckets, "name", "controller"),
		work: histogram("workqueue_work_duration_seconds",
			"Duration of runs.", queueBuckets, "name", "controller"),
		reconciles: counter("controller_runtime_reconcile_total",
			"Runs by result.", "controller", "result"),
		errors: counter("controller_runtime_reconcile_errors_total",
			"Failed runs.", "controller"),
		terminals: counter("controller_runtime_terminal_reconcile_errors_total",
			"Runs that failed with a terminal error.", "controller"),
		panics: counter("controller_runtime_reconcile_panics_total",
			"Runs that panicked.", "controller"),
		timeouts: counter("controller_runtime_reconcile_timeouts_total",
			"Runs that exceeded the timeout of the controller.", "controller"),
		reconcileTime: histogram("controller_runtime_reconcile_time_seconds", "Duration of runs.", []float64{
			0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1,
			1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
		}, "controller"),
		leads: prometheus.NewDesc("leader_election_master_status", "1 if this process leads, otherwise 0.",
			[]string{"name"}, nil),
		reads: prometheus.NewDesc("certwatcher_read_certificate_total",
			"Reads of the files of webhook servers' certificates.", nil, nil),
		failedReads: prometheus.NewDesc("certwatcher_read_certificate_errors_total",
			"Reads of these files that found no valid certificate.", nil, nil),
	}
	c.requests = newCompatibleRequests(counter, histogram)
	c.hooks = newCompatibleHooks(&made, counter, histogram)
	c.all = made
	c.addGauges()
	return c
}

// addGauges adds the metrics that are read at each scrape.
func (c *compatible) addGauges() {
	add := func(to *[]gauge[controller.Stats], name, help string, labels []string, merge func(a, b float64) float64,
		value func(s controller.Stats) float64,
	) {
		*to = append(*to, gauge[controller.Stats]{
			desc: prometheus.NewDesc(name, help, labels, nil), value: value,
			merge: merge,
		})
	}
	both := []string{"name", "controller"}
	depth := prometheus.NewDesc("workqueue_depth", "Keys that are ready and wait for a worker, by priority.",
		append(slices.Clone(both), "priority"), nil)
	for priority, value := range compatiblePriorities() {
		c.queue = append(c.queue, gauge[controller.Stats]{
			desc: depth, labels: []string{value}, merge: sum,
			value: func(s controller.Stats) float64 { return float64(s.ReadyByPriority[priority]) },
		})
	}
	add(&c.queue, "workqueue_unfinished_work_seconds", "Sum of the durations of the current runs so far.", both, sum,
		func(s controller.Stats) float64 { return s.UnfinishedRuns.Seconds() })
	add(&c.queue, "workqueue_longest_running_processor_seconds", "Duration of the longest current run so far.", both,
		greatest, func(s controller.Stats) float64 { return s.LongestRun.Seconds() })
	add(&c.workers, "controller_runtime_max_concurrent_reconciles", "Number of workers of the controller.",
		both[1:], sum,
		func(s controller.Stats) float64 { return float64(s.Workers) })
	add(&c.workers, "controller_runtime_active_workers", "Workers that are processing a key.", both[1:], sum,
		func(s controller.Stats) float64 { return float64(s.Processing) })
}

// compatiblePriorities returns the values of the label priority: controller-runtime adds the keys of first lists with
// -100 and others with 0, and has no name for a high priority.
func compatiblePriorities() map[controller.Priority]string {
	return map[controller.Priority]string{
		controller.PriorityLow: "-100", controller.PriorityNormal: "0", controller.PriorityHigh: "100",
	}
}

// collectReads sends the reads of the certificates of all servers.
func (c *compatible) collectReads(to chan<- prometheus.Metric, servers map[string][]certificate) {
	var reads, failed uint64
	for _, all := range servers {
		for _, one := range all {
			reads += one.reads
			failed += one.failedReads
		}
	}
	to <- prometheus.MustNewConstMetric(c.reads, prometheus.CounterValue, float64(reads))
	to <- prometheus.MustNewConstMetric(c.failedReads, prometheus.CounterValue, float64(failed))
}

// collectLeadership sends 1 for each lease that one of the electors holds.
func (c *compatible) collectLeadership(to chan<- prometheus.Metric, all []leader.Status) {
	leads := map[string]bool{}
	for _, status := range all {
		_, name, found := strings.Cut(status.Lease, "/")
		if found { // no lease: a manager without leader election
			leads[name] = leads[name] || status.Leading
		}
	}
	for name, leads := range leads {
		to <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, number(leads), label(name))
	}
}

// compatibleController contains the counters and histograms of one controller.
type compatibleController struct {
	adds, retries, errors, terminals, panics, timeouts prometheus.Counter
	results                                            map[string]prometheus.Counter // immutable
	wait, work, reconcile                              prometheus.Observer
}

// The results of controller-runtime.
const (
	resultSuccess      = "success"
	resultError        = "error"
	resultRequeue      = "requeue"
	resultRequeueAfter = "requeue_after"
)

func (c *compatible) newController(name string) *compatibleController {
	results := map[string]prometheus.Counter{}
	for _, result := range []string{resultSuccess, resultError, resultRequeue, resultRequeueAfter} {
		results[result] = c.reconciles.WithLabelValues(name, result)
	}
	return &compatibleController{
		adds:      c.adds.WithLabelValues(name, name),
		retries:   c.queueRetries.WithLabelValues(name, name),
		wait:      c.queueWait.WithLabelValues(name, name),
		work:      c.work.WithLabelValues(name, name),
		results:   results,
		errors:    c.errors.WithLabelValues(name),
		terminals: c.terminals.WithLabelValues(name),
		panics:    c.panics.WithLabelValues(name),
		timeouts:  c.timeouts.WithLabelValues(name),
		reconcile: c.reconcileTime.WithLabelValues(name),
	}
}

func (c *compatibleController) countTrigger(cause controller.CauseType) {
	c.adds.Inc()
	if cause == controller.CauseRetry || cause == controller.CauseRequeue {
		c.retries.Inc()
	}
}

func (c *compatibleController) countRun(run controller.RunRecord) {
	c.wait.Observe(run.Wait.Seconds())
	c.work.Observe(run.Duration.Seconds())
	c.reconcile.Observe(run.Duration.Seconds())
	result := resultError
	switch run.Outcome {
	case controller.OutcomeSuccess, controller.OutcomeGone:
		result = resultSuccess
	case controller.OutcomeRequeue:
		result = resultRequeueAfter
	case controller.OutcomeCancelled: // by the end of the controller: not an error, and the key runs again
		result = resultRequeue
	case controller.OutcomeTerminal:
		c.terminals.Inc()
	case controller.OutcomePanic:
		c.panics.Inc()
	case controller.OutcomeTimeout:
		c.timeouts.Inc()
	}
	c.results[result].Inc()
	if result == resultError {
		c.errors.Inc()
	}
}

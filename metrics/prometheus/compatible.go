package prometheus

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

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
	requests                                        *prometheus.CounterVec
	requestTime                                     *prometheus.HistogramVec

	all            []prometheus.Collector
	queue, workers []gauge[controller.Stats] // with the labels name and controller, and controller
	leads          *prometheus.Desc
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
		requests: counter("rest_client_requests_total",
			"HTTP requests by status code, method and host.", "code", "method", "host"),
		requestTime: histogram("rest_client_request_duration_seconds",
			"Time between the request and the header of its response.",
			[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host"),
		leads: prometheus.NewDesc("leader_election_master_status", "1 if this process leads, otherwise 0.",
			[]string{"name"}, nil),
	}
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
	add(&c.queue, "workqueue_depth", "Keys that are ready and wait for a worker.", both, sum,
		func(s controller.Stats) float64 { return float64(s.Ready) })
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

// wrapTransport returns a transport that counts the requests of next in rest_client_*, or next itself unless
// Config.CompatibleNames is set.
func (r *Recorder) wrapTransport(next http.RoundTripper) http.RoundTripper {
	if r.compat == nil {
		return next
	}
	return &countingTransport{next: next, metrics: r.compat}
}

type countingTransport struct {
	// Immutable.
	next    http.RoundTripper
	metrics *compatible
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	method, host, began := req.Method, label(req.URL.Host), time.Now()
	if !slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions,
	}, method) {
		method = otherValue
	}
	resp, err := t.next.RoundTrip(req)
	code := "<error>" // client-go's value
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	t.metrics.requests.WithLabelValues(code, method, host).Inc()
	t.metrics.requestTime.WithLabelValues(method, host).Observe(time.Since(began).Seconds())
	return resp, err
}

// WrappedRoundTripper implements client-go's RoundTripperWrapper.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

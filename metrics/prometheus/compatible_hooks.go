package prometheus

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// compatibleHooks are the metrics of webhook servers.
type compatibleHooks struct {
	latency                             *prometheus.HistogramVec
	requests, panics, conversionsPanics *prometheus.CounterVec
	inFlight                            *prometheus.GaugeVec
}

func newCompatibleHooks(made *vectorList, counter makeCounter, histogram makeHistogram) compatibleHooks {
	h := compatibleHooks{
		latency: histogram("controller_runtime_webhook_latency_seconds",
			"Duration of webhook requests.", prometheus.ExponentialBuckets(10e-9, 10, 12), "webhook"),
		requests: counter("controller_runtime_webhook_requests_total",
			"Webhook requests by HTTP status code.", "webhook", "code"),
		panics: counter("controller_runtime_webhook_panics_total",
			"Webhook requests in which a function panicked, without conversions."),
		conversionsPanics: counter("controller_runtime_conversion_webhook_panics_total",
			"Conversions that panicked."),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "controller_runtime_webhook_requests_in_flight", Help: "Current number of webhook requests.",
		}, []string{"webhook"}),
	}
	*made = append(*made, h.inFlight)
	h.panics.WithLabelValues() // exposed as 0 from the start
	h.conversionsPanics.WithLabelValues()
	return h
}

// ObserveHook implements webhook.Recorder. It does nothing unless Config.CompatibleNames is set.
func (r *Recorder) ObserveHook(path string, isConversion bool) (begin func() (end func(status int, panicked bool))) {
	if r.compat == nil {
		return func() func(int, bool) { return func(int, bool) {} }
	}
	hooks, path := r.compat.hooks, label(path)
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		hooks.requests.WithLabelValues(path, strconv.Itoa(status)) // exposed as 0 from the start
	}
	inFlight, latency := hooks.inFlight.WithLabelValues(path), hooks.latency.WithLabelValues(path)
	panics := hooks.panics
	if isConversion {
		panics = hooks.conversionsPanics
	}
	return func() func(int, bool) {
		inFlight.Inc()
		start := time.Now()
		return func(status int, panicked bool) {
			inFlight.Dec()
			latency.Observe(time.Since(start).Seconds())
			hooks.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
			if panicked {
				panics.WithLabelValues().Inc()
			}
		}
	}
}

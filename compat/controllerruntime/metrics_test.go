package controllerruntime_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

// missing are the metrics of controller-runtime that metrics/prometheus does not have, with the reasons.
func missing() map[string]string {
	return map[string]string{
		"rest_client_request_retries_total": "the library repeats no request: the key is tried again",
		"rest_client_rate_limiter_duration_seconds": "there is no rate limit by default, and controller-runtime measures " +
			"its own on demand only",
		"controller_runtime_client_consistency_wait_duration_seconds": "a read does not wait for writes: the key does, see " +
			"evenkeel_controller_hold_seconds",
	}
}

// labelsByName returns the labels of the metrics that are registered, without those of the process.
func labelsByName(t *testing.T, registered prometheus.Collector) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() { // ends with the loop
		defer close(descs)
		registered.Describe(descs)
	}()
	parts := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: {([^}]*)}`)
	labels := map[string][]string{}
	for desc := range descs {
		found := parts.FindStringSubmatch(desc.String())
		if found == nil {
			t.Errorf("unexpected description: %s", desc)
			continue
		}
		if name := found[1]; !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			labels[name] = slices.Sorted(strings.SplitSeq(found[2], ","))
		}
	}
	return labels
}

// Config.CompatibleNames of metrics/prometheus has the metrics that controller-runtime registers, with the same labels.
func TestCompatibleNamesAreThoseOfControllerRuntime(t *testing.T) {
	t.Parallel()
	crmetrics.RegisterRESTClientMetrics(crmetrics.MetricRequestLatency, crmetrics.MetricDNSResolutionLatency,
		crmetrics.MetricRequestSize, crmetrics.MetricResponseSize, crmetrics.MetricRateLimiterLatency,
		crmetrics.MetricRequestRetry)
	original, ok := crmetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatalf("controller-runtime's registry is a %T, which does not describe its metrics", crmetrics.Registry)
	}
	registry := prometheus.NewRegistry()
	if _, err := metrics.New(metrics.Config{Registerer: registry, CompatibleNames: true}); err != nil {
		t.Fatal(err)
	}
	want, got := labelsByName(t, original), labelsByName(t, registry)
	for name := range missing() {
		if want[name] == nil {
			t.Errorf("controller-runtime does not register %s: remove its reason", name)
		}
		delete(want, name)
	}
	for name, labels := range want {
		if !slices.Equal(labels, got[name]) {
			t.Errorf("%s has the labels %q, want %q: add it to metrics/prometheus, or a reason", name, got[name], labels)
		}
	}
	for name := range got {
		if want[name] == nil && !strings.HasPrefix(name, "evenkeel_") {
			t.Errorf("controller-runtime does not register %s", name)
		}
	}
	if len(want) < 25 {
		t.Errorf("controller-runtime registers only %d metrics", len(want))
	}
}

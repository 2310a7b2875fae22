package prometheus_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRecorder returns a Recorder on a registry of its own, with few buckets. The registry
// is pedantic: it checks what is collected against what was described.
func newRecorder(tb testing.TB) (*metrics.Recorder, *prometheus.Registry) {
	tb.Helper()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{
		Registerer:      registry,
		DurationBuckets: []float64{0.1, 10},
		WaitBuckets:     []float64{1},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return recorder, registry
}

// expect compares what the registry exposes of the named metrics, or of all, with want.
func expect(t *testing.T, registry prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// gather returns the values of all series that are not histograms, by name and labels.
func gather(tb testing.TB, registry prometheus.Gatherer) map[string]float64 {
	tb.Helper()
	values := map[string]float64{}
	for _, family := range families(tb, registry) {
		for _, m := range family.GetMetric() {
			if m.Histogram == nil {
				values[family.GetName()+labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return values
}

func families(tb testing.TB, registry prometheus.Gatherer) []*dto.MetricFamily {
	tb.Helper()
	found, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// histogramCounts returns how often each series of a histogram was observed.
func histogramCounts(tb testing.TB, registry prometheus.Gatherer, name string) map[string]uint64 {
	tb.Helper()
	counts := map[string]uint64{}
	for _, family := range families(tb, registry) {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				counts[labelsOf(m)] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return counts
}

func labelsOf(m *dto.Metric) string {
	var pairs []string
	for _, label := range m.GetLabel() {
		pairs = append(pairs, label.GetName()+"="+label.GetValue())
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

const smallStory = `
# HELP evenkeel_controller_handle_seconds How long runs took, by outcome. The count is the number of runs.
# TYPE evenkeel_controller_handle_seconds histogram
evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="error",le="0.1"} 1
evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="error",le="10"} 2
evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="error",le="+Inf"} 2
evenkeel_controller_handle_seconds_sum{controller="pods",outcome="error"} 2.0625
evenkeel_controller_handle_seconds_count{controller="pods",outcome="error"} 2
evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="success",le="0.1"} 0
evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="success",le="10"} 0
evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="success",le="+Inf"} 1
evenkeel_controller_handle_seconds_sum{controller="pods",outcome="success"} 30
evenkeel_controller_handle_seconds_count{controller="pods",outcome="success"} 1
# HELP evenkeel_controller_phase 1 for the phase that the controller is in, 0 for the others.
# TYPE evenkeel_controller_phase gauge
evenkeel_controller_phase{controller="pods",phase="draining"} 0
evenkeel_controller_phase{controller="pods",phase="running"} 1
evenkeel_controller_phase{controller="pods",phase="standby"} 0
evenkeel_controller_phase{controller="pods",phase="stopped"} 0
evenkeel_controller_phase{controller="pods",phase="syncing"} 0
# HELP evenkeel_controller_queue_length Keys that are due and wait for a worker.
# TYPE evenkeel_controller_queue_length gauge
evenkeel_controller_queue_length{controller="pods"} 4
# HELP evenkeel_controller_queue_wait_seconds How long keys were due before a worker took them.
# TYPE evenkeel_controller_queue_wait_seconds histogram
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="1"} 2
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="+Inf"} 3
evenkeel_controller_queue_wait_seconds_sum{controller="pods"} 2.75
evenkeel_controller_queue_wait_seconds_count{controller="pods"} 3
# HELP evenkeel_controller_queue_waiting Keys that wait for their time: retries, requeues, resyncs.
# TYPE evenkeel_controller_queue_waiting gauge
evenkeel_controller_queue_waiting{controller="pods"} 5
# HELP evenkeel_controller_queued_total Keys put into the queue, also those that merged with one that was there, by cause.
# TYPE evenkeel_controller_queued_total counter
evenkeel_controller_queued_total{cause="added",controller="pods"} 1
evenkeel_controller_queued_total{cause="deleted",controller="pods"} 0
evenkeel_controller_queued_total{cause="listed",controller="pods"} 0
evenkeel_controller_queued_total{cause="requeue",controller="pods"} 0
evenkeel_controller_queued_total{cause="resync",controller="pods"} 0
evenkeel_controller_queued_total{cause="retry",controller="pods"} 2
evenkeel_controller_queued_total{cause="triggered",controller="pods"} 0
evenkeel_controller_queued_total{cause="updated",controller="pods"} 0
# HELP evenkeel_controller_retries_total Runs of keys whose run before had failed.
# TYPE evenkeel_controller_retries_total counter
evenkeel_controller_retries_total{controller="pods"} 2
# HELP evenkeel_controller_workers Workers that the controller has.
# TYPE evenkeel_controller_workers gauge
evenkeel_controller_workers{controller="pods"} 3
# HELP evenkeel_controller_workers_busy Workers that are handling a key.
# TYPE evenkeel_controller_workers_busy gauge
evenkeel_controller_workers_busy{controller="pods"} 2
# HELP evenkeel_informer_cache_bytes Memory that the cache takes, with its indexes: an estimate.
# TYPE evenkeel_informer_cache_bytes gauge
evenkeel_informer_cache_bytes{informer="Pod"} 2800
# HELP evenkeel_informer_decode_seconds_total Time spent on decoding objects for readers of the cache.
# TYPE evenkeel_informer_decode_seconds_total counter
evenkeel_informer_decode_seconds_total{informer="Pod"} 0.25
# HELP evenkeel_informer_decoded_objects_total Objects decoded for readers of the cache.
# TYPE evenkeel_informer_decoded_objects_total counter
evenkeel_informer_decoded_objects_total{informer="Pod"} 9
# HELP evenkeel_informer_degraded 1 while an optional informer does without what the cluster does not serve or forbids to read, otherwise 0.
# TYPE evenkeel_informer_degraded gauge
evenkeel_informer_degraded{informer="Pod"} 0
# HELP evenkeel_informer_failing 1 for the reason why the informer cannot list or watch now, 0 for the others.
# TYPE evenkeel_informer_failing gauge
evenkeel_informer_failing{informer="Pod",reason="Forbidden"} 0
evenkeel_informer_failing{informer="Pod",reason="NotServed"} 0
evenkeel_informer_failing{informer="Pod",reason="Other"} 0
evenkeel_informer_failing{informer="Pod",reason="Unauthorized"} 0
evenkeel_informer_failing{informer="Pod",reason="Unreachable"} 0
# HELP evenkeel_informer_last_event_timestamp_seconds When the last list, event or bookmark arrived, in seconds since 1970.
# TYPE evenkeel_informer_last_event_timestamp_seconds gauge
evenkeel_informer_last_event_timestamp_seconds{informer="Pod"} 1000.5
# HELP evenkeel_informer_objects Objects in the cache.
# TYPE evenkeel_informer_objects gauge
evenkeel_informer_objects{informer="Pod"} 7
# HELP evenkeel_informer_received_bytes_total Bytes read from the API server.
# TYPE evenkeel_informer_received_bytes_total counter
evenkeel_informer_received_bytes_total{informer="Pod"} 34000
# HELP evenkeel_informer_synced 1 when everything has been listed since the informer was started, otherwise 0.
# TYPE evenkeel_informer_synced gauge
evenkeel_informer_synced{informer="Pod"} 1
`

func TestExpositionOfASmallStory(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	recorder.ObserveController("pods", func() controller.Stats {
		return controller.Stats{Phase: controller.PhaseRunning, Queued: 4, Waiting: 5, Busy: 2, Workers: 3}
	})
	recorder.ObserveInformer("Pod", func() informer.Health {
		return informer.Health{
			Informer: "Pod", Synced: true, Objects: 7, LastEvent: time.UnixMilli(1_000_500),
			Bytes: 2800, Received: 34_000, Decoded: 9, DecodeTime: 250 * time.Millisecond,
		}
	})
	// One key fails twice and then succeeds.
	recorder.Queued("pods", workqueue.CauseAdded)
	recorder.Handled("pods", controller.Handled{Outcome: controller.OutcomeError, Wait: 500 * time.Millisecond, Duration: 62500 * time.Microsecond})
	recorder.Queued("pods", workqueue.CauseRetry)
	recorder.Handled("pods", controller.Handled{Outcome: controller.OutcomeError, Attempt: 1, Wait: 250 * time.Millisecond, Duration: 2 * time.Second})
	recorder.Queued("pods", workqueue.CauseRetry)
	recorder.Handled("pods", controller.Handled{Outcome: controller.OutcomeSuccess, Attempt: 2, Wait: 2 * time.Second, Duration: 30 * time.Second})

	expect(t, registry, smallStory)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("names and help that Prometheus advises against: %v, %v", problems, err)
	}
}

func TestConfigMistakesAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config metrics.Config
		want   []string
	}{
		"no registerer": {metrics.Config{}, []string{"Registerer is required"}},
		"everything": {
			metrics.Config{Namespace: "even-keel", DurationBuckets: []float64{1, 1}, WaitBuckets: []float64{math.NaN()}},
			[]string{"Registerer is required", `"even-keel"`, "DurationBuckets[1] is 1, after 1", "WaitBuckets[0] is not a number"},
		},
		"a namespace that begins with a digit": {
			metrics.Config{Registerer: prometheus.NewRegistry(), Namespace: "1st"}, []string{`"1st"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, err := metrics.New(tc.config)
			if recorder != nil || err == nil {
				t.Fatalf("New returned %v, %v; want an error alone", recorder, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	recorder.Handled("pods", controller.Handled{Outcome: controller.OutcomeSuccess})
	bounds := map[string][]float64{}
	for _, family := range families(t, registry) {
		for _, m := range family.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				bounds[family.GetName()] = nil
				if h.Schema != nil {
					t.Errorf("%s is a native histogram, though NativeHistograms is false", family.GetName())
				}
				for _, bucket := range h.GetBucket() {
					bounds[family.GetName()] = append(bounds[family.GetName()], bucket.GetUpperBound())
				}
			}
		}
	}
	want := map[string][]float64{
		metrics.DefaultNamespace + "_controller_handle_seconds":     metrics.DefaultBuckets(),
		metrics.DefaultNamespace + "_controller_queue_wait_seconds": metrics.DefaultBuckets(),
	}
	if diff := cmp.Diff(want, bounds); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}

func TestNativeHistogramsAreAddedToTheClassicOnes(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry, NativeHistograms: true})
	if err != nil {
		t.Fatal(err)
	}
	recorder.Handled("pods", controller.Handled{Outcome: controller.OutcomeSuccess, Duration: time.Second, Wait: time.Second})
	seen := 0
	for _, family := range families(t, registry) {
		for _, m := range family.GetMetric() {
			h := m.GetHistogram()
			if h.GetSampleCount() == 0 {
				continue
			}
			seen++
			if h.Schema == nil || len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
				t.Errorf("%s: want native and classic buckets, got %v", family.GetName(), h)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d histograms have the run, want 2", seen)
	}
}

func TestBucketsOfTheCallerAreCopied(t *testing.T) {
	t.Parallel()
	buckets := []float64{1, 2}
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry, WaitBuckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	buckets[0] = 5
	recorder.Handled("pods", controller.Handled{Outcome: controller.OutcomeSuccess})
	expect(t, registry, `
# HELP evenkeel_controller_queue_wait_seconds How long keys were due before a worker took them.
# TYPE evenkeel_controller_queue_wait_seconds histogram
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="1"} 1
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="2"} 1
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="+Inf"} 1
evenkeel_controller_queue_wait_seconds_sum{controller="pods"} 0
evenkeel_controller_queue_wait_seconds_count{controller="pods"} 1
`, "evenkeel_controller_queue_wait_seconds")
}

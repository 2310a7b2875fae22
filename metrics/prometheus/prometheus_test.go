package prometheus_test

import (
	"math"
	"os"
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
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRecorder returns a Recorder with few buckets and its own pedantic registry, which checks that collected metrics
// match their descriptions.
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

// expect compares the exposition of the named metrics, or of all metrics, with want.
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

// expectValues compares series that are not histograms. A missing series is not equal to 0.
func expectValues(tb testing.TB, registry prometheus.Gatherer, want map[string]float64) {
	tb.Helper()
	got := gather(tb, registry)
	for series, want := range want {
		if value, found := got[series]; !found || value != want {
			tb.Errorf("%s is %v (found: %t), want %v", series, value, found, want)
		}
	}
}

func families(tb testing.TB, registry prometheus.Gatherer) []*dto.MetricFamily {
	tb.Helper()
	found, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// histogramCounts returns the number of observations of each series of a histogram.
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

func TestExposition(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	recorder.ObserveController("pods", func() controller.Stats {
		return controller.Stats{
			Phase: controller.PhaseRunning, Ready: 4, Delayed: 5, Backoff: 6, Held: 1, Processing: 2, Workers: 3,
			OldestWait: 1500 * time.Millisecond, Failing: 8, FailingSince: time.UnixMilli(2_000_250),
			Problems: map[controller.ProblemType]int{controller.ProblemFailing: 2},
		}
	})
	recorder.ObserveInformer("Pod", func() informer.Health {
		return informer.Health{
			Informer: "Pod", Synced: true, Objects: 7, LastEvent: time.UnixMilli(1_000_500),
			Bytes: 2800, Received: 34_000, Decoded: 9, DecodeTime: 250 * time.Millisecond,
			Staleness: 12 * time.Second, Lag: 20 * time.Millisecond,
		}
	})
	// One key fails twice. Its third run was held back, succeeds and writes. The event of this write is skipped.
	recorder.Triggered("pods", controller.SourceSelf, controller.CauseAdded)
	recorder.RunEnded("pods", controller.RunRecord{
		Outcome: controller.OutcomeError, Causes: controller.NewCauses(controller.Cause{Type: controller.CauseAdded}), Class: retry.Default, Wait: 500 * time.Millisecond, Duration: 62500 * time.Microsecond, Decode: 250 * time.Millisecond,
	})
	recorder.Triggered("pods", controller.SourceLoop, controller.CauseRetry)
	recorder.RunEnded("pods", controller.RunRecord{
		Outcome: controller.OutcomeError, Causes: controller.NewCauses(controller.Cause{Type: controller.CauseRetry}), Class: retry.Conflict, Attempt: 1, Wait: 250 * time.Millisecond, Duration: 2 * time.Second, Writes: 1,
	})
	recorder.ProblemDetected("pods", controller.ProblemFailing)
	recorder.Triggered("pods", controller.SourceLoop, controller.CauseRetry)
	recorder.Triggered("pods", "owned.Deployment", controller.CauseUpdated)
	recorder.RunEnded("pods", controller.RunRecord{
		Outcome: controller.OutcomeSuccess, Causes: controller.NewCauses(controller.Cause{Type: controller.CauseRetry}), Attempt: 2, Wait: 2 * time.Second, Held: 500 * time.Millisecond, Duration: 30 * time.Second,
		Decode: 500 * time.Millisecond, Writes: 2,
	})
	recorder.Skipped("pods", controller.SkipOwnWrite)

	want, err := os.ReadFile("testdata/exposition.prom")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, registry, string(want))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint problems of names and help: %v, %v", problems, err)
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
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
					t.Errorf("the error %q lacks %q", err, want)
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
	recorder.RunEnded("pods", controller.RunRecord{Outcome: controller.OutcomeSuccess})
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
	defaults := []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600}
	want := map[string][]float64{
		"evenkeel_controller_handle_seconds":     defaults,
		"evenkeel_controller_queue_wait_seconds": defaults,
		"evenkeel_controller_hold_seconds":       defaults,
	}
	if diff := cmp.Diff(want, bounds); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}

func TestNativeAndClassicHistograms(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry, NativeHistograms: true})
	if err != nil {
		t.Fatal(err)
	}
	recorder.RunEnded("pods", controller.RunRecord{Outcome: controller.OutcomeSuccess, Duration: time.Second, Wait: time.Second})
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
		t.Errorf("%d histograms contain the run, want 2", seen)
	}
}

func TestBucketsAreCopied(t *testing.T) {
	t.Parallel()
	buckets := []float64{1, 2}
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry, WaitBuckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	buckets[0] = 5
	recorder.RunEnded("pods", controller.RunRecord{Outcome: controller.OutcomeSuccess})
	expect(t, registry, `
# HELP evenkeel_controller_queue_wait_seconds Time that keys were ready before a worker processed them.
# TYPE evenkeel_controller_queue_wait_seconds histogram
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="1"} 1
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="2"} 1
evenkeel_controller_queue_wait_seconds_bucket{controller="pods",le="+Inf"} 1
evenkeel_controller_queue_wait_seconds_sum{controller="pods"} 0
evenkeel_controller_queue_wait_seconds_count{controller="pods"} 1
`, "evenkeel_controller_queue_wait_seconds")
}

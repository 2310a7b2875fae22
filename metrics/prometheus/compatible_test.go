package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func newCompatibleRecorder(tb testing.TB) (*metrics.Recorder, *prometheus.Registry) {
	tb.Helper()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry, CompatibleNames: true})
	if err != nil {
		tb.Fatal(err)
	}
	return recorder, registry
}

// runPods runs a controller until the test has called the returned function, which waits for its end.
func runPods(t *testing.T, config controller.Config[*corev1.Pod]) (stop func()) {
	t.Helper()
	config.Name, config.ResyncInterval, config.Logger = "pods", -1, slog.New(slog.DiscardHandler)
	ctrl, err := controller.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return testrun.Start(t, ctrl.Run)
}

// The first run fails after 90 s, and the second one succeeds after 90 s.
func TestCompatibleNamesOfController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, registry := newCompatibleRecorder(t)
		failures := 1
		stop := runPods(t, controller.Config[*corev1.Pod]{
			Retriever: pods(1),
			Handler: func(context.Context, *corev1.Pod) error {
				time.Sleep(90 * time.Second)
				if failures > 0 {
					failures--
					return errors.New("not yet")
				}
				return nil
			},
			Metrics: recorder,
		})
		time.Sleep(time.Minute)
		expectValues(t, registry, map[string]float64{
			"workqueue_depth{controller=pods,name=pods,priority=0}":                  0,
			"workqueue_adds_total{controller=pods,name=pods}":                        1,
			"workqueue_unfinished_work_seconds{controller=pods,name=pods}":           60,
			"workqueue_longest_running_processor_seconds{controller=pods,name=pods}": 60,
			"controller_runtime_active_workers{controller=pods}":                     1,
			"controller_runtime_max_concurrent_reconciles{controller=pods}":          3,
			"controller_runtime_reconcile_total{controller=pods,result=error}":       0,
		})
		time.Sleep(10 * time.Minute)
		expectValues(t, registry, map[string]float64{
			"workqueue_adds_total{controller=pods,name=pods}":                        2,
			"workqueue_retries_total{controller=pods,name=pods}":                     1,
			"workqueue_unfinished_work_seconds{controller=pods,name=pods}":           0,
			"workqueue_longest_running_processor_seconds{controller=pods,name=pods}": 0,
			"controller_runtime_active_workers{controller=pods}":                     0,
			"controller_runtime_reconcile_total{controller=pods,result=error}":       1,
			"controller_runtime_reconcile_total{controller=pods,result=success}":     1,
			"controller_runtime_reconcile_errors_total{controller=pods}":             1,
			"controller_runtime_reconcile_panics_total{controller=pods}":             0,
		})
		for _, name := range []string{"workqueue_queue_duration_seconds", "workqueue_work_duration_seconds", "controller_runtime_reconcile_time_seconds"} {
			for _, count := range histogramCounts(t, registry, name) {
				if count != 2 {
					t.Errorf("%s has %d observations, want 2", name, count)
				}
			}
		}
		stop()
	})
}

// Several workers run at once: the sum and the maximum differ.
func TestUnfinishedWorkOfSeveralRuns(t *testing.T) {
	t.Parallel()
	recorder, registry := newCompatibleRecorder(t)
	for _, stats := range []controller.Stats{
		{Ready: 2, ReadyByPriority: map[controller.Priority]int{-1: 1, 0: 1}, UnfinishedRuns: 5 * time.Second, LongestRun: 4 * time.Second},
		{Ready: 4, ReadyByPriority: map[controller.Priority]int{-1: 3, 1: 1}, UnfinishedRuns: 3 * time.Second, LongestRun: 3 * time.Second},
	} {
		recorder.ObserveController("pods", func() controller.Stats { return stats })
	}
	expectValues(t, registry, map[string]float64{
		"workqueue_depth{controller=pods,name=pods,priority=-100}":               4,
		"workqueue_depth{controller=pods,name=pods,priority=0}":                  1,
		"workqueue_depth{controller=pods,name=pods,priority=100}":                1,
		"workqueue_unfinished_work_seconds{controller=pods,name=pods}":           8,
		"workqueue_longest_running_processor_seconds{controller=pods,name=pods}": 4,
	})
}

func TestReconcileResults(t *testing.T) {
	t.Parallel()
	recorder, registry := newCompatibleRecorder(t)
	for _, outcome := range append(metrics.Outcomes(), "unknown") {
		recorder.RunEnded("pods", controller.RunRecord{Outcome: outcome})
	}
	expectValues(t, registry, map[string]float64{
		"controller_runtime_reconcile_total{controller=pods,result=success}":       2, // success, gone
		"controller_runtime_reconcile_total{controller=pods,result=requeue_after}": 1,
		"controller_runtime_reconcile_total{controller=pods,result=requeue}":       1, // cancelled
		"controller_runtime_reconcile_total{controller=pods,result=error}":         5, // error, timeout, panic, terminal, unknown
		"controller_runtime_reconcile_errors_total{controller=pods}":               5,
		"controller_runtime_terminal_reconcile_errors_total{controller=pods}":      1,
		"controller_runtime_reconcile_panics_total{controller=pods}":               1,
		"controller_runtime_reconcile_timeouts_total{controller=pods}":             1,
	})
}

// The number of series must not depend on the number of namespaces, names and texts of errors.
func TestNamespacesAndErrorTextsAddNoSeries(t *testing.T) {
	t.Parallel()
	series := func(t *testing.T, n int) (count int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			recorder, registry := newCompatibleRecorder(t)
			stop := runPods(t, controller.Config[*corev1.Pod]{
				Retriever: pods(n),
				Handler: func(_ context.Context, pod *corev1.Pod) error {
					return fmt.Errorf("cannot handle %s in %s", pod.Name, pod.Namespace)
				},
				Metrics: recorder,
			})
			time.Sleep(time.Second)
			if failing := gather(t, registry)["evenkeel_controller_failing_keys{controller=pods}"]; failing != float64(n) {
				t.Errorf("%v keys fail, want %d", failing, n)
			}
			var err error
			if count, err = testutil.GatherAndCount(registry); err != nil {
				t.Error(err)
			}
			stop()
		})
		return count
	}
	if one, many := series(t, 1), series(t, 10_000); one == 0 || many != one {
		t.Errorf("10,000 namespaces have %d series, one has %d", many, one)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// newRecorderOfCluster returns a Recorder with compatible names for a Cluster with this transport, and the transport of
// the Cluster.
func newRecorderOfCluster(t *testing.T, send roundTripper) (*metrics.Recorder, *prometheus.Registry, http.RoundTripper) {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "https://api:6443", Transport: send})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(metrics.Config{Cluster: cluster, Registerer: registry, CompatibleNames: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.New(metrics.Config{Cluster: cluster, Registerer: prometheus.NewRegistry()}); err == nil {
		t.Error("a Cluster has two Recorders")
	}
	return recorder, registry, cluster.HTTPClient().Transport
}

func TestRequestsOfClusterAreCounted(t *testing.T) {
	t.Parallel()
	_, registry, transport := newRecorderOfCluster(t, func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodDelete {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: http.StatusConflict, Body: http.NoBody}, nil
	})
	send := func(method, path string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://api:6443/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := transport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	for i := range 10_000 {
		send(http.MethodPut, fmt.Sprint("api/v1/namespaces/", i))
		send(fmt.Sprint("METHOD", i), "")
	}
	send(http.MethodDelete, "")
	got := map[string]float64{}
	for series, value := range gather(t, registry) {
		if strings.HasPrefix(series, "rest_client_") {
			got[series] = value
		}
	}
	want := map[string]float64{
		"rest_client_requests_total{code=409,host=api:6443,method=PUT}":        10_000,
		"rest_client_requests_total{code=409,host=api:6443,method=other}":      10_000,
		"rest_client_requests_total{code=<error>,host=api:6443,method=DELETE}": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	wantTimes := map[string]uint64{
		"{host=api:6443,verb=PUT}": 10_000, "{host=api:6443,verb=other}": 10_000, "{host=api:6443,verb=DELETE}": 1,
	}
	if diff := cmp.Diff(wantTimes, histogramCounts(t, registry, "rest_client_request_duration_seconds")); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
}

func TestLeaderElectionStatus(t *testing.T) {
	t.Parallel()
	recorder, registry := newCompatibleRecorder(t)
	const series = "leader_election_master_status{name=operator}"
	status := leader.Status{}
	stop := recorder.ObserveLeadership(func() leader.Status { return status })
	if _, found := gather(t, registry)[series]; found {
		t.Error("a manager without a lease has a status")
	}
	for at, want := range map[leader.Status]float64{
		{}: 0, {Standby: true}: 0, {Leading: true}: 1,
	} {
		at.Lease = "system/operator"
		status = at
		expectValues(t, registry, map[string]float64{series: want})
	}
	stop()
	if _, found := gather(t, registry)[series]; found {
		t.Error("the status remains after stop")
	}
}

func TestCompatibleNamesAreOff(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	recordAll(recorder)
	recorder.ObserveLeadership(func() leader.Status { return leader.Status{Lease: "system/operator"} })
	for _, family := range families(t, registry) {
		if !strings.HasPrefix(family.GetName(), "evenkeel_") {
			t.Errorf("%s is exposed without CompatibleNames", family.GetName())
		}
	}
}

// The bounds are those of client-go (component-base) and controller-runtime: dashboards name them in queries.
func TestCompatibleBuckets(t *testing.T) {
	t.Parallel()
	recorder, registry := newCompatibleRecorder(t)
	recorder.RunEnded("pods", controller.RunRecord{Outcome: controller.OutcomeSuccess})
	type buckets struct {
		N           int
		First, Last float64
	}
	got := map[string]buckets{}
	for _, family := range families(t, registry) {
		for _, m := range family.GetMetric() {
			if all := m.GetHistogram().GetBucket(); len(all) > 0 && !strings.HasPrefix(family.GetName(), "evenkeel_") {
				got[family.GetName()] = buckets{len(all), all[0].GetUpperBound(), all[len(all)-1].GetUpperBound()}
			}
		}
	}
	queue := prometheus.ExponentialBuckets(10e-9, 10, 12)
	want := map[string]buckets{
		"controller_runtime_reconcile_time_seconds": {40, 0.005, 60},
		"workqueue_queue_duration_seconds":          {12, queue[0], queue[11]},
		"workqueue_work_duration_seconds":           {12, queue[0], queue[11]},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}

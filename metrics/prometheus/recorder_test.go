package prometheus_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestNewFailsIfMetricsAreRegistered(t *testing.T) {
	t.Parallel()
	_, registry := newRecorder(t)
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	if recorder != nil || err == nil {
		t.Fatalf("the second New returned %v, %v; want an error alone", recorder, err)
	}
	if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) {
		t.Errorf("the error is %q; want one that wraps prometheus.AlreadyRegisteredError", err)
	}
}

func TestFailedNewRegistersNothing(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	// Only its type differs, because a registry never forgets labels and help.
	foreign := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "evenkeel_controller_retries_total", Help: "Runs after a failed run of the same key.",
	}, []string{"controller"})
	registry.MustRegister(foreign)
	if _, err := metrics.New(metrics.Config{Registerer: registry}); err == nil {
		t.Fatal("New returned no error, although evenkeel_controller_retries_total is registered")
	}
	registry.Unregister(foreign)
	if _, err := metrics.New(metrics.Config{Registerer: registry}); err != nil {
		t.Errorf("the failed New registered metrics: %v", err)
	}
}

func TestRecordersOnDifferentRegistriesAreIndependent(t *testing.T) {
	t.Parallel()
	one, first := newRecorder(t)
	_, second := newRecorder(t)
	one.Triggered("pods", controller.SourceSelf, controller.CauseAdded)
	if got := gather(t, first)["evenkeel_controller_triggers_total{controller=pods,source=self,type=added}"]; got != 1 {
		t.Errorf("the first registry has %v, want 1", got)
	}
	if diff := cmp.Diff(map[string]float64{}, gather(t, second)); diff != "" {
		t.Errorf("the second registry is not empty (-want +got):\n%s", diff)
	}
}

func TestNamespaceIsPrefix(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry, Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	recordAll(recorder)
	found := families(t, registry)
	if len(found) != 36 {
		t.Errorf("%d metrics, want 36", len(found))
	}
	for _, family := range found {
		if !strings.HasPrefix(family.GetName(), "shop_") {
			t.Errorf("%s does not begin with shop_", family.GetName())
		}
	}
}

func TestStatsOfOneNameAreSummed(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	for _, stats := range []controller.Stats{
		{
			Phase: controller.PhaseRunning, Ready: 1, Delayed: 2, Processing: 3, Workers: 4, Backoff: 5, Held: 6, OldestWait: 7 * time.Second,
			Failing: 8, FailingSince: time.Unix(50, 0), Problems: map[controller.ProblemType]int{controller.ProblemStuck: 1},
		},
		{
			Phase: controller.PhaseSyncing, Ready: 10, Delayed: 20, Processing: 30, Workers: 40, Backoff: 50, Held: 60, OldestWait: 2 * time.Second,
			Failing: 80, FailingSince: time.Unix(40, 0), Problems: map[controller.ProblemType]int{controller.ProblemStuck: 2, controller.ProblemHotLoop: 3},
		},
		{},
	} {
		recorder.ObserveController("pods", func() controller.Stats { return stats })
	}
	for _, health := range []informer.Health{
		{Synced: true, Objects: 1, Bytes: 100, Received: 1000, Decoded: 1, DecodeTime: time.Second, Staleness: 8 * time.Second, Lag: 2 * time.Second},
		{Synced: true, Objects: 2, Bytes: 200, DecodedBytes: 50, Received: 2000, Decoded: 2, DecodeTime: 2 * time.Second, Optional: true, Degraded: true, LastEvent: time.Unix(30, 0), Staleness: 9 * time.Second, Lag: time.Second},
		{Synced: false, Objects: 4, LastEvent: time.Unix(20, 0), Err: errors.New("broken")},
	} {
		recorder.ObserveInformer("Pod", func() informer.Health { return health })
	}
	recorder.ObserveInformer("Node", func() informer.Health { return informer.Health{Synced: true, Objects: 9} })
	recorder.ObserveInformer("Lease", func() informer.Health { return informer.Health{Staleness: 3 * time.Second} }) // one of two has listed
	recorder.ObserveInformer("Secret", func() informer.Health { return informer.Health{} })
	recorder.ObserveController("nodes", func() controller.Stats { return controller.Stats{} })

	expectValues(t, registry, map[string]float64{
		"evenkeel_controller_queue_ready{controller=pods}":                     11,
		"evenkeel_controller_queue_delayed{controller=pods}":                   22,
		"evenkeel_controller_workers_busy{controller=pods}":                    33,
		"evenkeel_controller_workers{controller=pods}":                         44,
		"evenkeel_controller_phase{controller=pods,phase=running}":             1,
		"evenkeel_controller_phase{controller=pods,phase=syncing}":             1,
		"evenkeel_controller_phase{controller=pods,phase=standby}":             0,
		"evenkeel_controller_queue_backoff{controller=pods}":                   55,
		"evenkeel_controller_queue_held{controller=pods}":                      66,
		"evenkeel_controller_queue_oldest_wait_seconds{controller=pods}":       7,
		"evenkeel_controller_failing_keys{controller=pods}":                    88,
		"evenkeel_controller_failing_since_timestamp_seconds{controller=pods}": 40,
		"evenkeel_controller_problems_active{controller=pods,type=stuck}":      3,
		"evenkeel_controller_problems_active{controller=pods,type=hot-loop}":   3,
		"evenkeel_controller_problems_active{controller=pods,type=stalled}":    0,
		"evenkeel_controller_failing_keys{controller=nodes}":                   0,
		"evenkeel_informer_staleness_seconds{informer=Pod}":                    9,
		"evenkeel_informer_staleness_seconds{informer=Node}":                   0,
		"evenkeel_informer_staleness_seconds{informer=Lease}":                  3,
		"evenkeel_informer_lag_seconds{informer=Pod}":                          2,
		"evenkeel_informer_objects{informer=Pod}":                              7,
		"evenkeel_informer_synced{informer=Pod}":                               0,
		"evenkeel_informer_failing{informer=Pod,reason=Other}":                 1,
		"evenkeel_informer_failing{informer=Pod,reason=Forbidden}":             0,
		"evenkeel_informer_last_event_timestamp_seconds{informer=Pod}":         20,
		"evenkeel_informer_objects{informer=Node}":                             9,
		"evenkeel_informer_cache_bytes{informer=Pod}":                          350,
		"evenkeel_informer_received_bytes_total{informer=Pod}":                 3000,
		"evenkeel_informer_decoded_objects_total{informer=Pod}":                3,
		"evenkeel_informer_decode_seconds_total{informer=Pod}":                 3,
		"evenkeel_informer_degraded{informer=Pod}":                             1,
		"evenkeel_informer_degraded{informer=Node}":                            0,
		"evenkeel_informer_synced{informer=Node}":                              1,
	})
	got := gather(t, registry)
	for series, why := range map[string]string{
		"evenkeel_informer_last_event_timestamp_seconds{informer=Node}":         "no event has arrived",
		"evenkeel_informer_staleness_seconds{informer=Secret}":                  "nothing is listed yet; 0 would mean that the cache is up to date",
		"evenkeel_controller_failing_since_timestamp_seconds{controller=nodes}": "no key fails",
	} {
		if value, found := got[series]; found {
			t.Errorf("%s is %v although %s", series, value, why)
		}
	}
}

func TestStopRemovesGaugesAndKeepsCounters(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	stopController := recorder.ObserveController("pods", func() controller.Stats { return controller.Stats{Workers: 2} })
	stopOther := recorder.ObserveController("pods", func() controller.Stats { return controller.Stats{Workers: 3} })
	stopInformer := recorder.ObserveInformer("Pod", func() informer.Health { return informer.Health{} })
	recorder.Triggered("pods", controller.SourceSelf, controller.CauseAdded)

	stopController()
	stopController() // a second call changes nothing
	if got := gather(t, registry)["evenkeel_controller_workers{controller=pods}"]; got != 3 {
		t.Errorf("%v workers after one of two controllers has stopped, want 3", got)
	}
	stopOther()
	stopInformer()
	got := gather(t, registry)
	for series := range got {
		if !strings.Contains(series, "_total{") {
			t.Errorf("%s still exists", series)
		}
	}
	if got["evenkeel_controller_triggers_total{controller=pods,source=self,type=added}"] != 1 {
		t.Errorf("the counter is %v after stop", got)
	}
}

// A program may start and stop any number of controllers.
func TestStopReleasesFunction(t *testing.T) {
	t.Parallel()
	recorder, _ := newRecorder(t)
	stats := &controller.Stats{Workers: 1}
	kept := weak.Make(stats)
	recorder.ObserveController("pods", func() controller.Stats { return *stats })()
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the Recorder still references the function after stop")
	}
	runtime.KeepAlive(recorder)
}

// startScrape starts a scrape, and returns while the scrape is in the observed function. finish lets it continue and
// waits for its end.
func startScrape(t *testing.T, registry prometheus.Gatherer, observe func(read func())) (finish func()) {
	t.Helper()
	inside, release, scraped := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	observe(func() {
		close(inside)
		<-release
	})
	go func() { // waited for by finish
		_, err := registry.Gather()
		scraped <- err
	}()
	<-inside
	return func() {
		close(release)
		if err := <-scraped; err != nil {
			t.Error(err)
		}
	}
}

// The observed function must not run after stop has returned.
func TestStopWaitsForScrape(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	var reading atomic.Bool
	var stop func()
	finish := startScrape(t, registry, func(read func()) {
		stop = recorder.ObserveController("pods", func() controller.Stats {
			reading.Store(true)
			read()
			reading.Store(false)
			return controller.Stats{}
		})
	})
	stopped := make(chan bool)
	go func() { // waited for through stopped
		stop()
		stopped <- reading.Load()
	}()
	for range 1000 {
		runtime.Gosched() // gives a stop that does not wait the time to return
	}
	finish()
	if <-stopped {
		t.Error("stop returned while the function was running")
	}
}

// An informer calls ObserveInformer while it holds the lock that its Health takes.
func TestScrapeDoesNotBlockObserve(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	finish := startScrape(t, registry, func(read func()) {
		recorder.ObserveInformer("Pod", func() informer.Health {
			read()
			return informer.Health{}
		})
	})
	// Without a limit: if it waits for the scrape, the test ends with the time of go test.
	recorder.ObserveInformer("Node", func() informer.Health { return informer.Health{} })()
	finish()
}

// Label values that the program defines have their own series up to a limit. Unknown values of fixed sets share
// "other".
func TestContract28_UnknownLabelValuesAreBounded(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	const names, sources, classes = 1000, 50, 20
	for i := range names {
		name := fmt.Sprint("name ", i)
		recorder.Triggered("pods", controller.SourceSelf, controller.CauseType(name))
		recorder.Triggered("pods", name, controller.CauseTriggered)
		recorder.Triggered("nodes", name, controller.CauseTriggered)
		recorder.Skipped("pods", controller.SkipReason(name))
		recorder.ProblemDetected("pods", controller.ProblemType(name))
		recorder.RunEnded("pods", controller.RunRecord{Outcome: controller.Outcome(name), Class: retry.Class(name)})
	}
	for i := range sources {
		recorder.Triggered("pods", fmt.Sprint("name ", i), controller.CauseTriggered) // keeps its series
	}
	expectValues(t, registry, map[string]float64{
		"evenkeel_controller_triggers_total{controller=pods,source=self,type=other}":        names,
		"evenkeel_controller_triggers_total{controller=pods,source=name 0,type=triggered}":  2,
		"evenkeel_controller_triggers_total{controller=pods,source=name 49,type=triggered}": 2,
		"evenkeel_controller_triggers_total{controller=pods,source=other,type=triggered}":   names - sources,
		"evenkeel_controller_triggers_total{controller=nodes,source=other,type=triggered}":  names - sources,
		"evenkeel_controller_skipped_total{controller=pods,reason=other}":                   names,
		"evenkeel_controller_problems_total{controller=pods,type=other}":                    names,
		"evenkeel_controller_failures_total{class=name 19,controller=pods}":                 1,
		"evenkeel_controller_failures_total{class=other,controller=pods}":                   names - classes,
		"evenkeel_controller_failures_total{class=conflict,controller=pods}":                0,
	})
	counts := map[string]int{}
	for series := range gather(t, registry) {
		name, _, _ := strings.Cut(series, "{")
		counts[name]++
	}
	wantCounts := map[string]int{
		// self and loop have 4 from the start, and self has "other".
		"evenkeel_controller_triggers_total": (4 + 4 + sources + 1) + 1 + (4 + 4 + sources + 1),
		"evenkeel_controller_skipped_total":  2*len(metrics.SkipReasons()) + 1,
		"evenkeel_controller_problems_total": 2*len(metrics.ProblemTypes()) + 1,
		"evenkeel_controller_failures_total": 2*len(metrics.Classes()) + classes + 1,
	}
	for name, want := range wantCounts {
		if counts[name] != want {
			t.Errorf("%s has %d series, want %d", name, counts[name], want)
		}
	}
	want := map[string]uint64{
		"{controller=nodes,outcome=error}":   0,
		"{controller=nodes,outcome=success}": 0,
		"{controller=pods,outcome=other}":    names,
		"{controller=pods,outcome=error}":    0,
		"{controller=pods,outcome=success}":  0,
	}
	if diff := cmp.Diff(want, histogramCounts(t, registry, "evenkeel_controller_handle_seconds")); diff != "" {
		t.Errorf("runs by outcome (-want +got):\n%s", diff)
	}
}

func TestInvalidUTF8InNames(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	defer recorder.ObserveController("a\xff", func() controller.Stats { return controller.Stats{Workers: 1} })()
	defer recorder.ObserveInformer("b\xff", func() informer.Health { return informer.Health{Objects: 1} })()
	recorder.Triggered("a\xff", "c\xff", controller.CauseAdded)
	recorder.RunEnded("a\xff", controller.RunRecord{Outcome: controller.OutcomeError, Class: "d\xff", TraceID: "e\xff"})
	got := gather(t, registry)
	for _, series := range []string{
		"evenkeel_controller_workers{controller=a\uFFFD}",
		"evenkeel_informer_objects{informer=b\uFFFD}",
		"evenkeel_controller_triggers_total{controller=a\uFFFD,source=c\uFFFD,type=added}",
		"evenkeel_controller_failures_total{class=d\uFFFD,controller=a\uFFFD}",
	} {
		if got[series] != 1 {
			t.Errorf("%s is %v, want 1", series, got[series])
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	const controllers, runs = 8, 200
	var all sync.WaitGroup
	for i := range controllers {
		name := fmt.Sprint("controller ", i%3)
		all.Go(func() { // waited for below
			for run := range runs {
				stop := recorder.ObserveController(name, func() controller.Stats { return controller.Stats{} })
				stopInformer := recorder.ObserveInformer(name, func() informer.Health { return informer.Health{} })
				recorder.Triggered(name, fmt.Sprint("source ", run%100), controller.CauseUpdated)
				recorder.RunEnded(name, controller.RunRecord{Outcome: controller.OutcomePanic, Attempt: 1, TraceID: "1"})
				stop()
				stopInformer()
			}
		})
		all.Go(func() { // waited for below
			for range runs / 10 {
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	triggers, retries := 0.0, 0.0
	for series, value := range gather(t, registry) {
		if strings.HasPrefix(series, "evenkeel_controller_triggers_total{") {
			triggers += value
		}
		if strings.HasPrefix(series, "evenkeel_controller_retries_total") {
			retries += value
		}
	}
	if triggers != controllers*runs || retries != controllers*runs {
		t.Errorf("%v triggers, %v retries, want %d of each", triggers, retries, controllers*runs)
	}
}

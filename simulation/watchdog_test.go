package simulation

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

const testLimit = time.Minute

// testWatchdog is a watchdog whose time passes with the calls of pass only.
type testWatchdog struct {
	*watchdog

	ticks chan time.Time
	now   time.Time
}

func newTestWatchdog(report func(text string)) *testWatchdog {
	ticks := make(chan time.Time)
	return &testWatchdog{startWatchdog(ticks, func() {}, testLimit, report), ticks, time.Now()}
}

// pass lets d pass: the watchdog looks before and after it.
func (w *testWatchdog) pass(d time.Duration) {
	w.ticks <- w.now
	w.now = w.now.Add(d)
	w.ticks <- w.now
}

// watched runs f in a bubble with a watchdog, and returns its reports. f calls stops when it is about to stop the virtual
// time: then the limit passes for the watchdog. release is called at the first report.
func watched(t *testing.T, release func(), f func(c *Cluster, stops func())) []string {
	t.Helper()
	var reports []string
	dog := newTestWatchdog(func(text string) {
		reports = append(reports, text)
		release()
	})
	stopped := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() { // waited for below
		<-stopped
		dog.pass(testLimit)
	})
	synctest.Test(t, func(t *testing.T) {
		f(newCluster(t, Config{WithoutControllers: true}, dog.watchdog, nil), sync.OnceFunc(func() { close(stopped) }))
	})
	passing.Wait()
	dog.end()
	return reports
}

// onlyReport fails the test unless there is one report, in which function comes before another goroutine of the bubble.
func onlyReport(t *testing.T, reports []string, function string) {
	t.Helper()
	if len(reports) != 1 {
		t.Fatalf("%d reports: %s", len(reports), reports)
	}
	culprit, other := strings.Index(reports[0], "simulation."+function), strings.Index(reports[0], "(durable)")
	if culprit < 0 || other < culprit {
		t.Errorf("report %s, want %s first", reports[0], function)
	}
	if !strings.Contains(reports[0], "2000-01-01T01:00:00Z") || strings.Contains(reports[0], "(*watchdog)") {
		t.Errorf("report %s, want the virtual time, and no goroutine outside of the bubble", reports[0])
	}
}

func waitForMutex(mu *sync.Mutex, stops func()) {
	stops()
	mu.Lock()
	defer mu.Unlock()
}

func loop(end *atomic.Bool, stops func()) {
	stops()
	for !end.Load() {
		runtime.Gosched()
	}
}

// The bubble does not detect a goroutine that waits for a mutex.
func TestWatchdogReportsMutex(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	mu.Lock()
	onlyReport(t, watched(t, mu.Unlock, func(c *Cluster, stops func()) {
		c.Go("idle", untilEnd)
		c.Advance(time.Hour)
		waitForMutex(&mu, stops)
	}), "waitForMutex")
}

func TestWatchdogReportsLoop(t *testing.T) {
	t.Parallel()
	var end atomic.Bool
	onlyReport(t, watched(t, func() { end.Store(true) }, func(c *Cluster, stops func()) {
		c.Go("idle", untilEnd)
		c.Advance(time.Hour)
		loop(&end, stops)
	}), "loop")
}

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// A test whose time advances is not reported, however long it takes.
func TestWatchdogAcceptsProgress(t *testing.T) {
	t.Parallel()
	dog := newTestWatchdog(func(text string) { t.Errorf("report: %s", text) })
	defer dog.end()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, Config{WithoutControllers: true}, dog.watchdog, nil)
		for range 10 {
			dog.pass(testLimit - 1)
			c.Advance(time.Minute)
		}
	})
}

// A handler that never waits stops the time, and the report names its controller and the causes of its runs.
func TestWatchdogReportsRuns(t *testing.T) {
	t.Parallel()
	var report atomic.Pointer[string]
	var end atomic.Bool
	dog := newTestWatchdog(func(text string) {
		report.Store(&text)
		end.Store(true)
	})
	defer dog.end()
	stopped := make(chan struct{})
	var passing sync.WaitGroup
	defer passing.Wait()
	passing.Go(func() { // waited for above
		<-stopped
		dog.pass(testLimit)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, Config{WithoutControllers: true}, nil, nil)
		runs := 0
		second, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "again", Retriever: informer.RetrieveSelected[*corev1.ConfigMap](c.Connect("again"), kube.Selection{Namespaces: []string{"default"}}),
			Handler: func(context.Context, *corev1.ConfigMap) error {
				if runs++; runs == 10 {
					dog.enter(c.allRuns)
					loop(&end, func() { close(stopped) })
					return nil
				}
				return controller.RequeueAfter(0, "poll the vault")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Run(second)
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}}`)
		c.Settle() // returns after the report
		if text := *report.Load(); !strings.Contains(text, "of default/motto: requeue (poll the vault) -> requeue") {
			t.Errorf("report %s, want the runs", text)
		}
	})
}

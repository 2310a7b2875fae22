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
)

// testLimit is a limit that a busy machine does not reach before the test stops the time.
const testLimit = time.Second

// watched runs f in a bubble with a watchdog, and returns its reports. release is called at the first.
func watched(t *testing.T, release func(), f func(t *testing.T, c *Cluster)) []string {
	t.Helper()
	var reports []string
	dog := newWatchdog(testLimit, func(text string) {
		reports = append(reports, text)
		release()
	})
	synctest.Test(t, func(t *testing.T) { f(t, newCluster(t, Config{WithoutControllers: true}, dog)) })
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

func waitForMutex(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

func loop(end *atomic.Bool) {
	for !end.Load() {
		runtime.Gosched()
	}
}

// The bubble does not detect a goroutine that waits for a mutex.
func TestWatchdogReportsMutex(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	mu.Lock()
	onlyReport(t, watched(t, mu.Unlock, func(_ *testing.T, c *Cluster) {
		c.Go("idle", untilEnd)
		c.Advance(time.Hour)
		waitForMutex(&mu)
	}), "waitForMutex")
}

func TestWatchdogReportsLoop(t *testing.T) {
	t.Parallel()
	var end atomic.Bool
	onlyReport(t, watched(t, func() { end.Store(true) }, func(_ *testing.T, c *Cluster) {
		c.Go("idle", untilEnd)
		c.Advance(time.Hour)
		loop(&end)
	}), "loop")
}

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// A test whose time advances is not reported, however long it takes.
func TestWatchdogAcceptsProgress(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	realTime := time.AfterFunc(2*testLimit, func() { close(slow) })
	defer realTime.Stop()
	reports := watched(t, func() {}, func(_ *testing.T, c *Cluster) {
		for {
			select {
			case <-slow: // it is not of the bubble
				return
			default:
				c.Advance(time.Minute)
			}
		}
	})
	if len(reports) > 0 {
		t.Errorf("reports: %s", reports)
	}
}

// A handler that never waits stops the time, and the report names its controller and the causes of its runs.
func TestWatchdogReportsRuns(t *testing.T) {
	t.Parallel()
	var report atomic.Pointer[string]
	var end atomic.Bool
	dog := newWatchdog(testLimit, func(text string) {
		report.Store(&text)
		end.Store(true)
	})
	defer dog.end()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, Config{WithoutControllers: true}, nil)
		runs := 0
		again, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "again", Cluster: c.Connect("again"),
			Handler: func(context.Context, *corev1.ConfigMap) error {
				if runs++; runs == 10 {
					dog.enter(c.allRuns) // not earlier: a slow machine could stall before the loop
					loop(&end)
					return nil
				}
				return controller.RequeueAfter(0, "poll the vault")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Run(again)
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}}`)
		c.Settle() // returns after the report
		if text := *report.Load(); !strings.Contains(text, "of default/motto: requeue (poll the vault) -> requeue") {
			t.Errorf("report %s, want the runs", text)
		}
	})
}

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// attempts are the times of runs since the start of the test.
type attempts struct {
	began time.Time
	mu    sync.Mutex
	times []time.Duration // guarded by mu
}

// failing returns a handler that records its runs, and returns err.
func (a *attempts) failing(err error) controller.Handler {
	a.began = time.Now()
	return controller.HandlerFunc(func(context.Context, runtime.Object) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.times = append(a.times, time.Since(a.began))
		return err
	})
}

// take returns the runs since the last call.
func (a *attempts) take() (times []time.Duration) {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	times, a.times = a.times, nil
	return times
}

// In Kooper the kind of an error does not matter.
func TestDelaysBetweenRetries(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"any error": errors.New("any"), "429": apierrors.NewTooManyRequests("later", 60), "422": apierrors.NewInvalid(
			corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := &attempts{}
				run(t, controller.Config{
					Name: "delays", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))}, DisableResync: true,
					ProcessingJobRetries: 4, Handler: runs.failing(err),
				})
				time.Sleep(time.Hour)
				ms := time.Millisecond
				if got, want := runs.take(), []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms}; !slices.Equal(got, want) {
					t.Errorf("runs at %v, want %v", got, want)
				}
			})
		})
	}
}

func TestChangeAndResyncEndBackoff(t *testing.T) {
	t.Parallel()
	for _, resyncs := range []bool{false, true} {
		t.Run(fmt.Sprint(resyncs), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs, cluster := &attempts{}, configMaps{fake.NewClientset(configMap("web", "0"))}
				run(t, controller.Config{
					Name: "backoff", Retriever: cluster, DisableResync: !resyncs, ResyncInterval: 10 * time.Hour,
					ProcessingJobRetries: 1000, Handler: runs.failing(errors.New("it always fails")),
				})
				time.Sleep(10*time.Hour - time.Second) // the delay is 1000 s
				runs.take()
				time.Sleep(2 * time.Second)
				if got := len(runs.take()); (got > 0) != resyncs {
					t.Errorf("%d runs at the resync, resyncs %v", got, resyncs)
				}
				time.Sleep(10 * time.Second)
				runs.take()
				cluster.update(t, configMap("web", "1"))
				if got := len(runs.take()); got != 1 {
					t.Errorf("%d runs after a change during the backoff, want 1", got)
				}
			})
		})
	}
}

// A resync enqueues every object, also one that was just handled.
func TestResyncRunsEveryObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs, cluster := &attempts{}, configMaps{fake.NewClientset(configMap("a", "0"), configMap("b", "0"))}
		run(t, controller.Config{Name: "resync", Retriever: cluster, Handler: runs.failing(nil)})
		time.Sleep(3*time.Minute - 10*time.Second)
		cluster.update(t, configMap("a", "1"))
		if got := len(runs.take()); got != 3 {
			t.Errorf("%d runs before the resync, want 3", got)
		}
		time.Sleep(time.Minute)
		if got := len(runs.take()); got != 2 {
			t.Errorf("%d runs at the resync, want 2", got)
		}
	})
}

// The retries of all objects share a bucket of 100, which is filled with 10 a second. Objects that are given up take
// nothing from it.
func TestRetriesOfAllObjectsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for n := range 300 {
			objects = append(objects, configMap(fmt.Sprint("m", n), "0"))
		}
		runs, cluster := &attempts{}, configMaps{fake.NewClientset(objects...)}
		run(t, controller.Config{
			Name: "rate", Retriever: cluster, DisableResync: true, ProcessingJobRetries: 1,
			Handler: runs.failing(errors.New("it always fails")),
		})
		for _, step := range []struct {
			until time.Duration
			want  int
		}{{time.Second, 300 + 109}, {11 * time.Second, 100}, {21 * time.Second, 91}, {23 * time.Second, 0}} {
			time.Sleep(step.until - time.Since(runs.began))
			if got := len(runs.take()); got < step.want-2 || got > step.want+2 {
				t.Errorf("%d runs until %s, want %d", got, step.until, step.want)
			}
		}
		cluster.update(t, configMap("m0", "1"))
		time.Sleep(100 * time.Millisecond)
		if got := len(runs.take()); got != 2 {
			t.Errorf("%d runs after a change, want 2", got)
		}
	})
}

// A handler that does not return for a long time is not replaced.
func TestConcurrentWorkersIsMaximum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		run(t, controller.Config{
			Name: "workers", Retriever: configMaps{fake.NewClientset(configMap("a", "0"), configMap("b", "0"))},
			ConcurrentWorkers: 1,
			Handler: controller.HandlerFunc(func(ctx context.Context, _ runtime.Object) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-ctx.Done()
				return nil
			}),
		})
		time.Sleep(time.Hour)
		if got := most.Load(); got != 1 {
			t.Errorf("%d handlers run at once, want 1", got)
		}
	})
}

// recorded is a MetricsRecorder.
type recorded struct {
	mu    sync.Mutex
	began time.Time
	lines []string // guarded by mu
	queue func(context.Context) int
}

func (r *recorded) add(what string, value any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(what, " ", value))
}

func (r *recorded) IncResourceEventQueued(_ context.Context, name string, isRequeue bool) {
	r.add(name+" requeue", isRequeue)
}

func (r *recorded) ObserveResourceInQueueDuration(_ context.Context, _ string, queuedAt time.Time) {
	r.add("waited", time.Since(queuedAt)) // as package prometheus
}

func (r *recorded) ObserveResourceProcessingDuration(_ context.Context, _ string, success bool, startedAt time.Time) {
	r.add(fmt.Sprint("success ", success, " started at"), startedAt.Sub(r.began))
}

func (r *recorded) RegisterResourceQueueLengthFunc(_ string, f func(context.Context) int) error {
	r.queue = f
	return nil
}

func TestMetricsOfRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := &recorded{began: time.Now()}
		run(t, controller.Config{
			Name: "m", Retriever: configMaps{fake.NewClientset(configMap("a", "0"), configMap("b", "0"))}, DisableResync: true,
			ConcurrentWorkers: 1, ProcessingJobRetries: 1, MetricsRecorder: metrics,
			Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error {
				<-time.After(3 * time.Second)
				return errors.New("it always fails")
			}),
		})
		time.Sleep(time.Second)
		if got := metrics.queue(t.Context()); got != 1 {
			t.Errorf("the queue has %d keys, want 1", got)
		}
		time.Sleep(time.Minute)
		metrics.mu.Lock()
		defer metrics.mu.Unlock()
		slices.Sort(metrics.lines)
		want := []string{
			"m requeue false", "m requeue false", "m requeue true", "m requeue true",
			"success false started at 0s", "success false started at 3s", "success false started at 6s",
			"success false started at 9s", "waited 0s", "waited 2.995s", "waited 2.995s", "waited 3s",
		}
		if !slices.Equal(metrics.lines, want) {
			t.Errorf("recorded %q, want %q", metrics.lines, want)
		}
	})
}

func TestNewWritesDefaultsIntoConfig(t *testing.T) {
	t.Parallel()
	handler := controller.HandlerFunc(func(context.Context, runtime.Object) error { return nil })
	config := controller.Config{Name: "a", Handler: handler, Retriever: configMaps{}, Logger: log.Dummy, ProcessingJobRetries: -1}
	if _, err := controller.New(&config); err != nil {
		t.Fatal(err)
	}
	if config.ConcurrentWorkers != 3 || config.ResyncInterval != 3*time.Minute || config.ProcessingJobRetries != 0 ||
		config.MetricsRecorder != controller.DummyMetricsRecorder {
		t.Errorf("the Config is %+v", config)
	}
	config.DisableResync = true
	if _, err := controller.New(&config); err != nil || config.ResyncInterval != 0 {
		t.Errorf("error %v, the Config is %+v", err, config)
	}
}

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestNewReportsEveryMistake(t *testing.T) {
	_, err := controller.New(controller.Config[configMap]{
		Retriever: informer.FromListerWatcher[configMap](nil),
		Handler:   handlerFunc(nil),
		Sources:   []controller.Source{nil, controller.SourceFunc(nil)},
		Reads:     []informer.Any{(*informer.Informer[configMap])(nil)},
		Workers:   -1,
		Retry:     retry.Config{Every: retry.Policy{Base: -1, Max: -2, Jitter: 2, MaxRetries: -1}},
	})
	if err == nil {
		t.Fatal("New accepts it all")
	}
	for _, want := range []string{
		"Name is required", "ListerWatcher is nil", "Handler (or Reconciler) is required", "Sources[0] is nil", "Sources[1] is nil", "Reads[0] is nil",
		"Workers is -1", "Every.Base is -1ns", "Every.Max is -2ns", "Every.Jitter is 2",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}

	handler := handlerFunc(func(context.Context, configMap) error { return nil })
	inf, err := informer.New(informer.Config[configMap]{Retriever: newServer()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = controller.New(controller.Config[configMap]{
		Name: "x", Retriever: newServer(), Informer: inf,
		Handler: handler, Reconciler: func(context.Context, kube.Key) error { return nil },
	})
	for _, want := range []string{`controller "x"`, "Retriever and Informer are set", "Handler and Reconciler are both set"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	_, err = controller.New(controller.Config[configMap]{})
	if err == nil || !strings.Contains(err.Error(), "Cluster (or Retriever, or Informer) is required") {
		t.Errorf("an empty config: %v", err)
	}
}

// TestClusterReplacesRetriever checks that Cluster is equivalent to Retriever with informer.Retrieve, and that it
// excludes Retriever and Informer.
func TestClusterReplacesRetriever(t *testing.T) {
	cluster, err := kube.Connect(&rest.Config{Host: "https://api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	config := controller.Config[configMap]{
		Name: "x", Cluster: cluster, Handler: func(context.Context, configMap) error { return nil },
	}
	ctrl, err := controller.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if kind := ctrl.Informer().Kind().Kind; kind != "ConfigMap" {
		t.Errorf("it retrieves %q", kind)
	}
	config.Retriever = informer.Retrieve[configMap](cluster)
	if _, err := controller.New(config); err != nil { // the Cluster has the settings
		t.Errorf("Cluster and Retriever: %v", err)
	}
	config.Informer = ctrl.Informer()
	if _, err := controller.New(config); err == nil || !strings.Contains(err.Error(), "Retriever and Informer are set") {
		t.Errorf("Retriever and Informer: %v", err)
	}
	config.Informer = nil
	if config.Cluster, err = kube.Connect(&rest.Config{Host: "https://other.example.com"}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // with the Retriever, and then with the Informer
		if _, err := controller.New(config); err == nil || !strings.Contains(err.Error(), "another API server") {
			t.Errorf("objects of another API server: %v", err)
		}
		config.Informer, config.Retriever = ctrl.Informer(), nil
	}
	_, err = controller.New(controller.Config[*unstructured.Unstructured]{
		Name: "x", Cluster: cluster, Reconciler: func(context.Context, kube.Key) error { return nil },
	})
	if err == nil || !strings.Contains(err.Error(), "Selection.Kind") {
		t.Errorf("a type that does not determine a kind: %v", err)
	}
}

// TestNewCopiesConfig exists because Kooper changes its caller's config.
func TestNewCopiesConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second atomic.Int32
		count := func(n *atomic.Int32) controller.Source {
			return controller.SourceFunc(func(context.Context, controller.Enqueue) error { n.Add(1); return nil })
		}
		c := controller.Config[configMap]{
			Name: "test", Retriever: newServer(),
			Handler: handlerFunc(func(context.Context, configMap) error { return nil }),
			Sources: []controller.Source{count(&first)},
			Logger:  slog.New(slog.DiscardHandler),
		}
		ctrl := newController(t, c)
		if c.Workers != 0 || c.ResyncInterval != 0 || c.Runs.DrainTimeout != 0 || !reflect.DeepEqual(c.Retry, retry.Config{}) {
			t.Errorf("New has changed the caller's config: %+v", c)
		}
		c.Sources[0] = count(&second)
		start(t, ctrl)
		synctest.Wait()
		if first.Load() != 1 || second.Load() != 0 {
			t.Error("what the caller does with its slice afterwards changes the controller")
		}
	})
}

func TestDefaults(t *testing.T) {
	t.Run("Workers", func(t *testing.T) {
		ctrl := newController(t, config(newServer(), func(context.Context, configMap) error { return nil }))
		if got := ctrl.Stats().Workers; got != 3 {
			t.Errorf("Workers is %d by default, documented as 3", got)
		}
	})
	t.Run("ResyncInterval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			c := config(newServer("a"), func(context.Context, configMap) error { runs.Add(1); return nil })
			c.ResyncInterval = 0
			start(t, newController(t, c))
			time.Sleep(3 * time.Minute)
			if n := runs.Load(); n < 2 || n > 3 {
				t.Errorf("%d runs in the documented interval of 3 min", n)
			}
		})
	})
	t.Run("Timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
				if deadline, ok := ctx.Deadline(); ok {
					t.Errorf("the handler has a deadline, %s", deadline)
				}
				return nil
			})
			start(t, newController(t, c))
			synctest.Wait()
		})
	})
}

func TestRetriesFollowThePolicy(t *testing.T) {
	for name, test := range map[string]struct {
		policy retry.Config
		want   []time.Duration // between the first runs, without jitter
		total  int             // runs in an hour; 0: not checked
	}{
		"default": {
			retry.Config{Every: retry.Policy{Jitter: -1}},
			[]time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond},
			0,
		},
		"set": {
			retry.Config{Every: retry.Policy{Base: time.Second, Max: 3 * time.Second, Jitter: -1}},
			[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second},
			0,
		},
		"budget": {
			retry.Config{Every: retry.Policy{MaxRetries: 2, Jitter: -1}},
			[]time.Duration{5 * time.Millisecond, 10 * time.Millisecond},
			3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				c := config(newServer("a"), func(context.Context, configMap) error {
					times = append(times, time.Now())
					return errors.New("failed")
				})
				c.Retry = test.policy
				stop := start(t, newController(t, c))
				time.Sleep(time.Hour)
				_ = stop()
				var gaps []time.Duration
				for i := range test.want {
					gaps = append(gaps, times[i+1].Sub(times[i]))
				}
				if diff := cmp.Diff(test.want, gaps); diff != "" {
					t.Errorf("delays (-want +got):\n%s", diff)
				}
				if test.total > 0 && len(times) != test.total {
					t.Errorf("%d runs, want %d", len(times), test.total)
				}
			})
		})
	}
}

func TestRetryDelayIsAtMostMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		longest, shortest := time.Duration(0), 24*time.Hour
		n := 0
		c := config(newServer("a"), func(context.Context, configMap) error {
			if gap := time.Since(last); n > 20 {
				longest, shortest = max(longest, gap), min(shortest, gap)
			}
			n++
			last = time.Now()
			return errors.New("failed")
		})
		stop := start(t, newController(t, c))
		time.Sleep(7 * 24 * time.Hour)
		_ = stop()
		if longest > retryrules.Defaults()[retry.Default].Max || shortest < retryrules.Defaults()[retry.Default].Max*8/10 {
			t.Errorf("late retries come after %s to %s, want 80 to 100 %% of %s", shortest, longest, retryrules.Defaults()[retry.Default].Max)
		}
		if longest == shortest {
			t.Error("there is no jitter")
		}
	})
}

func TestChangeResetsRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var logs journal
		var runs atomic.Int32
		c := config(server, func(context.Context, configMap) error { runs.Add(1); return errors.New("failed") })
		c.Retry.Every.MaxRetries = 4
		c.Logger = logs.logger(slog.LevelError)
		start(t, newController(t, c))
		time.Sleep(time.Hour)
		if n := runs.Swap(0); n != 5 {
			t.Fatalf("%d runs, want the first and four retries", n)
		}
		if got := logs.take(); len(got) != 1 || !strings.Contains(got[0], "retries are exhausted") {
			t.Errorf("logged %q", got)
		}
		server.Put(object("a", "2"))
		time.Sleep(time.Hour)
		if n := runs.Load(); n != 5 {
			t.Errorf("%d runs after a change, want the whole budget, 5", n)
		}
	})
}

func TestTerminalIsNotRetriedUntilObjectChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var runs atomic.Int32
		c := config(server, func(context.Context, configMap) error {
			runs.Add(1)
			return fmt.Errorf("wrapped: %w", controller.Terminal(errors.New("bad spec")))
		})
		c.ResyncInterval = time.Minute
		start(t, newController(t, c))
		time.Sleep(3 * time.Hour)
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs in three hours without a change, want 1", n)
		}
		server.Put(object("a", "2"))
		time.Sleep(3 * time.Hour)
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs after a change, want 2", n)
		}
	})
}

func TestOutcomeOfHandlerResults(t *testing.T) {
	failure := errors.New("failure")
	requeue := controller.RequeueAfter(time.Hour)
	for name, test := range map[string]struct {
		answer error
		want   controller.Outcome
	}{
		"nil":                          {nil, controller.OutcomeSuccess},
		"error":                        {failure, controller.OutcomeError},
		"requeue":                      {requeue, controller.OutcomeRequeue},
		"wrapped requeue":              {fmt.Errorf("later: %w", requeue), controller.OutcomeRequeue},
		"two requeues":                 {errors.Join(requeue, controller.RequeueAfter(time.Minute)), controller.OutcomeRequeue},
		"error wins over requeue":      {errors.Join(requeue, failure), controller.OutcomeError},
		"error wins, in any order":     {fmt.Errorf("%w, and %w", failure, requeue), controller.OutcomeError},
		"terminal":                     {controller.Terminal(failure), controller.OutcomeTerminal},
		"error wins over terminal":     {errors.Join(failure, controller.Terminal(failure)), controller.OutcomeError},
		"wrapped terminal":             {fmt.Errorf("bad spec: %w", controller.Terminal(failure)), controller.OutcomeTerminal},
		"two terminals":                {errors.Join(controller.Terminal(failure), controller.Terminal(failure)), controller.OutcomeTerminal},
		"terminal of nil is no error":  {controller.Terminal(nil), controller.OutcomeSuccess},
		"terminal wins over a requeue": {errors.Join(requeue, controller.Terminal(failure)), controller.OutcomeTerminal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				metrics := newRecorder()
				c := config(newServer("a"), func(context.Context, configMap) error { return test.answer })
				c.Metrics = metrics
				stop := start(t, newController(t, c))
				synctest.Wait()
				_ = stop()
				outcomes, _ := metrics.snapshot()
				if diff := cmp.Diff(map[controller.Outcome]int{test.want: 1}, outcomes); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
	if err := controller.Terminal(failure); !errors.Is(err, failure) || !strings.Contains(err.Error(), "failure") {
		t.Errorf("Terminal hides its error: %v", err)
	}
	panicked := error(&usercode.HandlerPanicError{Value: failure})
	if !errors.Is(panicked, failure) {
		t.Error("PanicError hides the error that was panicked with")
	}
}

func TestEarliestRequeueWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		c := config(newServer("a"), func(context.Context, configMap) error {
			times = append(times, time.Now())
			return errors.Join(controller.RequeueAfter(time.Hour), controller.RequeueAfter(time.Minute))
		})
		stop := start(t, newController(t, c))
		time.Sleep(90 * time.Second)
		_ = stop()
		if len(times) != 2 || times[1].Sub(times[0]) != time.Minute {
			t.Errorf("runs at %v, want two, a minute apart", times)
		}
	})
}

func TestTimeoutCancelsAndCountsAsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newRecorder()
		c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
			if run, _ := controller.RunFrom(ctx); run.Attempt > 0 {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took != time.Minute {
				t.Errorf("cancelled after %s", took)
			}
			return ctx.Err()
		})
		c.Timeout = time.Minute
		c.Metrics = metrics
		start(t, newController(t, c))
		time.Sleep(time.Hour)
		outcomes, retries := metrics.snapshot()
		want := map[controller.Outcome]int{controller.OutcomeTimeout: 1, controller.OutcomeSuccess: 1}
		if diff := cmp.Diff(want, outcomes); diff != "" || retries != 1 {
			t.Errorf("%d retries, outcomes (-want +got):\n%s", retries, diff)
		}
	})
}

func TestRunOfContextHasCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var causes, logs journal
		keys := make(chan kube.Key)
		c := config(server, func(ctx context.Context, _ configMap) error {
			run, ok := controller.RunFrom(ctx)
			if !ok || run.Controller != "test" || run.Key != key("a") || !run.Started.Equal(time.Now()) {
				t.Errorf("RunFrom: %+v, %v", run, ok)
			}
			controller.LoggerFrom(ctx).Info("hello")
			causes.add("%s", run.Causes)
			time.Sleep(time.Second)
			return nil
		})
		c.ResyncInterval = time.Hour
		c.Logger = logs.logger(slog.LevelInfo)
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case k := <-keys:
					enqueue(k, controller.Trigger{Detail: "bell"})
				}
			}
		})}
		start(t, newController(t, c))
		time.Sleep(500 * time.Millisecond)
		server.Put(object("a", "2")) // while it is handled: both merge
		synctest.Wait()
		keys <- key("a")
		time.Sleep(3 * time.Hour)
		want := []string{"listed", "updated (spec) by editor, func: triggered (bell)", "resync", "resync"}
		if got := causes.take(); !slices.Equal(got[:len(want)], want) {
			t.Errorf("causes %q, want %q", got, want)
		}
		if got := logs.take(); !slices.Contains(got, `level=INFO msg=hello controller=test run.key=ns/a run.id=1`) {
			t.Errorf("the run's logger does not name controller and key: %q", got)
		}
	})
	if run, ok := controller.RunFrom(t.Context()); ok || controller.LoggerFrom(t.Context()) == nil {
		t.Errorf("RunFrom outside a handler: %+v, %v", run, ok)
	}
}

func TestGoneObjectsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		metrics := newRecorder()
		c := config(server, func(context.Context, configMap) error { return nil })
		c.Metrics = metrics
		start(t, newController(t, c))
		synctest.Wait()
		server.Delete(key("a"))
		synctest.Wait()
		outcomes, _ := metrics.snapshot()
		want := map[controller.Outcome]int{controller.OutcomeSuccess: 1, controller.OutcomeGone: 1}
		if diff := cmp.Diff(want, outcomes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestHandlerReceivesCopyOfObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen journal
		c := config(newServer("a"), func(_ context.Context, obj configMap) error {
			seen.add("%s", obj.Data["value"])
			obj.Data["value"] = "changed by the handler"
			return controller.RequeueAfter(time.Second)
		})
		start(t, newController(t, c))
		time.Sleep(2500 * time.Millisecond)
		if got := seen.take(); !slices.Equal(got, []string{"1", "1", "1"}) {
			t.Errorf("the handler saw %q", got)
		}
	})
}

func TestFailingSourceEndsTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		c := config(newServer("a"), func(context.Context, configMap) error { return nil })
		c.Sources = []controller.Source{controller.SourceFunc(func(context.Context, controller.Enqueue) error {
			time.Sleep(time.Minute)
			return broken
		})}
		err := newController(t, c).Run(t.Context())
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), `controller "test": source 0`) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestConcurrentRunIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		ctrl := newController(t, config(newServer("a"), func(context.Context, configMap) error { runs.Add(1); return nil }))
		stop := start(t, ctrl)
		synctest.Wait()
		if err := ctrl.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("a second Run: %v", err)
		}
		if err := ctrl.Ready(); err != nil {
			t.Errorf("the refused Run has disturbed the first: %v", err)
		}
		_ = stop()
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("Ready after the end: %v", err)
		}
		start(t, ctrl) // sequential runs are allowed, and start from the beginning
		synctest.Wait()
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs in two lives, want 2", n)
		}
	})
}

func TestControllersShareInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a", "b")
		inf, err := informer.New(informer.Config[configMap]{Retriever: server})
		if err != nil {
			t.Fatal(err)
		}
		var runs [2]atomic.Int32
		var stops []func() error
		var metrics [2]*recorder
		for i := range runs {
			c := config(nil, func(context.Context, configMap) error { runs[i].Add(1); return nil })
			c.Retriever, c.Informer = nil, inf
			metrics[i] = newRecorder()
			c.Metrics = metrics[i]
			stops = append(stops, start(t, newController(t, c)))
			time.Sleep(time.Second)
		}
		if runs[0].Load() != 2 || runs[1].Load() != 2 {
			t.Errorf("%d and %d runs, want 2 each", runs[0].Load(), runs[1].Load())
		}
		if _, watches, _ := server.Counts(); watches != 1 {
			t.Errorf("%d watches for a shared informer", watches)
		}
		_ = stops[0]()
		server.Put(object("a", "2"))
		synctest.Wait()
		if runs[0].Load() != 2 || runs[1].Load() != 3 {
			t.Errorf("after the first has ended: %d and %d runs, want 2 and 3", runs[0].Load(), runs[1].Load())
		}
		if n := metrics[0].queued[controller.CauseUpdated]; n != 0 {
			t.Error("a controller that has ended still hears from the informer")
		}
	})
}

func TestChainCallsTheFirstMiddlewareFirst(t *testing.T) {
	var order journal
	mark := func(name string) controller.Middleware[configMap] {
		return func(next controller.Handler[configMap]) controller.Handler[configMap] {
			return handlerFunc(func(ctx context.Context, obj configMap) error {
				order.add("%s in", name)
				defer order.add("%s out", name)
				return next(ctx, obj)
			})
		}
	}
	handler := controller.Chain(handlerFunc(func(context.Context, configMap) error { order.add("handler"); return nil }), mark("a"), mark("b"))
	if err := handler(t.Context(), object("x", "")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a in", "b in", "handler", "b out", "a out"}, order.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatsCountKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctrl := newController(t, config(newServer("a", "b", "c", "d", "e"), func(context.Context, configMap) error {
			time.Sleep(time.Second)
			return controller.RequeueAfter(time.Hour)
		}))
		noZeros := cmpopts.IgnoreMapEntries(func(_ controller.Priority, n int) bool { return n == 0 })
		if diff := cmp.Diff(controller.Stats{Phase: controller.PhaseStopped, Workers: 3}, ctrl.Stats()); diff != "" {
			t.Errorf("before Run (-want +got):\n%s", diff)
		}
		start(t, ctrl)
		synctest.Wait()
		if diff := cmp.Diff(controller.Stats{Phase: controller.PhaseRunning, Ready: 2, ReadyByPriority: map[controller.Priority]int{controller.PriorityLow: 2}, Processing: 3, Workers: 3}, ctrl.Stats(), noZeros); diff != "" {
			t.Errorf("at the start (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		if diff := cmp.Diff(controller.Stats{Phase: controller.PhaseRunning, ReadyByPriority: map[controller.Priority]int{}, Delayed: 5, Workers: 3}, ctrl.Stats(), noZeros); diff != "" {
			t.Errorf("at rest (-want +got):\n%s", diff)
		}
	})
}

// slowRelist is a Retriever that takes a second for each list after the first one.
type slowRelist struct {
	informer.Retriever[configMap]
	lists *atomic.Int32
}

func (r slowRelist) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if r.lists.Add(1) > 1 {
		time.Sleep(time.Second)
	}
	return r.Retriever.Watch(ctx, opts)
}

// TestHandlersRunAfterSharedInformerSyncs checks that a Reconciler never runs before the informer has listed,
// because it treats missing objects as deleted. This must also hold while other users join and leave the informer.
func TestHandlersRunAfterSharedInformerSyncs(t *testing.T) {
	// With one processor, the last user leaves between the controller's first steps.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for i := range 10 {
		synctest.Test(t, func(t *testing.T) {
			inf, err := informer.New(informer.Config[configMap]{
				Retriever: slowRelist{newServer("a"), &atomic.Int32{}}, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			c := config(nil, nil)
			c.Retriever, c.Handler, c.Informer = nil, nil, inf
			c.Reconciler = func(_ context.Context, k kube.Key) error {
				time.Sleep(time.Millisecond)
				if !cache.Of(inf).Has(k) {
					t.Errorf("hand-over %d: %s is taken for deleted", i, k)
				}
				return nil
			}
			leave := inf.Join(t.Context())
			if err := inf.WaitSynced(t.Context()); err != nil {
				t.Fatal(err)
			}
			left := make(chan struct{})
			go func() { leave(); close(left) }() // waited for below
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := newController(t, c).Run(ctx); err != nil {
				t.Error(err)
			}
			<-left
		})
	}
}

func TestGoexitOfHandlerIsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		metrics := newRecorder()
		c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
			if run, _ := controller.RunFrom(ctx); run.Attempt < 5 {
				runtime.Goexit()
			}
			return nil
		})
		c.Workers = 2
		c.Metrics = metrics
		c.Logger = logs.logger(slog.LevelWarn)
		start(t, newController(t, c))
		time.Sleep(time.Minute)
		outcomes, _ := metrics.snapshot()
		want := map[controller.Outcome]int{controller.OutcomeError: 5, controller.OutcomeSuccess: 1}
		if diff := cmp.Diff(want, outcomes); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if all := strings.Join(logs.take(), "\n"); !strings.Contains(all, "Goexit") {
			t.Errorf("the log does not say what happened:\n%s", all)
		}
	})
}

func TestPanicAfterFailureIsLoggedWithStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
			switch run, _ := controller.RunFrom(ctx); run.Attempt {
			case 0, 2:
				return errors.New("failed")
			case 1, 3:
				panic(controller.RequeueAfter(time.Second)) // the value of a panic is not a handler result
			}
			return nil
		})
		c.Logger = logs.logger(slog.LevelWarn)
		start(t, newController(t, c))
		time.Sleep(time.Minute)
		all := strings.Join(logs.take(), "\n")
		if n := strings.Count(all, "stack="); n != 1 {
			t.Errorf("%d stacks are logged, want one:\n%s", n, all)
		}
	})
}

func TestQueuedMetricCountsCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newRecorder()
		c := config(newServer("a"), func(context.Context, configMap) error { return controller.RequeueAfter(time.Second) })
		c.ResyncInterval = time.Hour
		c.Metrics = metrics
		stop := start(t, newController(t, c))
		time.Sleep(10*time.Second + time.Millisecond)
		_ = stop()
		want := map[controller.CauseType]int{controller.CauseListed: 1, controller.CauseRequeue: 11}
		if diff := cmp.Diff(want, metrics.queued); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestFailureDuringDrainIsLoggedWithoutRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		c := config(newServer("a"), func(context.Context, configMap) error {
			time.Sleep(time.Second)
			return errors.New("failed")
		})
		c.Logger = logs.logger(slog.LevelWarn)
		stop := start(t, newController(t, c))
		synctest.Wait()
		_ = stop()
		if got := logs.take(); len(got) != 1 || !strings.Contains(got[0], "next start") {
			t.Errorf("logged %q", got)
		}
	})
}

func TestReconcilerPanicIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var runs journal
		c := config(server, nil)
		c.Reconciler = func(ctx context.Context, k kube.Key) error {
			run, _ := controller.RunFrom(ctx)
			runs.add("%s attempt %d: %s", k.Name, run.Attempt, run.Causes)
			if run.Attempt == 0 {
				panic("first")
			}
			return nil
		}
		start(t, newController(t, c))
		time.Sleep(time.Second)
		server.Delete(key("a"))
		time.Sleep(time.Second)
		want := []string{"a attempt 0: listed", "a attempt 1: retry 1 (panic)", "a attempt 0: deleted", "a attempt 1: retry 1 (panic)"}
		if diff := cmp.Diff(want, runs.take()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// refusedElector never leads, and reports why.
type refusedElector struct{ err error }

func (e refusedElector) Run(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}

func (e refusedElector) Ready() error { return e.err }

func TestStandbyWithUnreachableLeaseIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(newServer("a"), func(context.Context, configMap) error { return nil })
		forbidden := errors.New("leases are forbidden")
		c.LeaderElector = refusedElector{forbidden}
		ctrl := newController(t, c)
		start(t, ctrl)
		synctest.Wait()
		if err := ctrl.Ready(); !errors.Is(err, forbidden) {
			t.Errorf("Ready: %v", err)
		}
	})
}

func TestReadsSyncBeforeHandlersAndEndAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer := newServer("other")
		otherServer.Fail("list", errors.New("not yet"))
		otherServer.Fail("watch", errors.New("not yet"))
		read, err := informer.New(informer.Config[configMap]{Name: "others", Retriever: otherServer, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int32
		c := config(newServer("a"), func(context.Context, configMap) error {
			runs.Add(1)
			if !cache.Of(read).Has(key("other")) {
				t.Error("a handler runs before what it reads is there")
			}
			time.Sleep(10 * time.Second)
			if err := read.Ready(); err != nil {
				t.Errorf("while a handler drains, what it reads is not ready: %v", err)
			}
			return nil
		})
		c.Reads = []informer.Any{read}
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(time.Minute)
		if n := runs.Load(); n != 0 {
			t.Fatalf("%d runs before what the handler reads was listed", n)
		}
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), `informer "others": not yet`) {
			t.Errorf("Ready does not name what is missing: %v", err)
		}
		otherServer.Fail("list", nil)
		otherServer.Fail("watch", nil)
		for runs.Load() == 0 {
			time.Sleep(time.Second)
		}
		if err := ctrl.Ready(); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if _, _, open := otherServer.Counts(); open != 0 {
			t.Error("the controller has ended, but not the watch of what it read")
		}
	})
}

// TestTerminalFailureIsRemovedWithObject checks that a terminal failure is forgotten together with its object.
// Otherwise it would exclude the next object of that name from resyncs, and leak memory.
func TestTerminalFailureIsRemovedWithObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var ok atomic.Bool
		runs := &journal{}
		c := config(server, func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			if ok.Load() {
				return nil
			}
			return controller.Terminal(errors.New("hopeless"))
		})
		c.ResyncInterval = time.Minute
		c.Predicate = func(ch informer.Change) bool { return ch.Type == informer.Listed || ch.Type == informer.Updated }
		start(t, newController(t, c))
		time.Sleep(5 * time.Minute)
		if got := len(runs.take()); got != 1 {
			t.Fatalf("%d runs", got)
		}
		ok.Store(true)
		server.Delete(key("a"))
		time.Sleep(time.Minute)
		server.Put(object("a", "2"))
		time.Sleep(3 * time.Minute)
		if got := len(runs.take()); got == 0 {
			t.Error("the new object is not resynced")
		}
	})
}

// TestObjectReplacedDuringAFailingRunIsResynced checks that a terminal failure of an object does not exclude another
// object, which replaced it during the run, from resyncs.
func TestObjectReplacedDuringAFailingRunIsResynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		first := true
		runs := &journal{}
		c := config(server, func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Data["value"])
			if first {
				first = false
				server.Delete(key("a"))
				server.Put(object("a", "2"))
				synctest.Wait()
				return controller.Terminal(errors.New("hopeless"))
			}
			return nil
		})
		c.ResyncInterval = time.Minute
		c.Predicate = func(ch informer.Change) bool { return ch.Type == informer.Listed }
		start(t, newController(t, c))
		time.Sleep(3 * time.Minute)
		if got := runs.take(); len(got) < 2 {
			t.Errorf("runs %q: the new object is not resynced", got)
		}
	})
}

// unsyncedInformer is an informer that fails to sync.
type unsyncedInformer struct{ informer.Any }

func (unsyncedInformer) Join(context.Context) func()      { return func() {} }
func (unsyncedInformer) WaitSynced(context.Context) error { return errors.New("it cannot sync") }
func (unsyncedInformer) Ready() error                     { return nil }

// TestUnsyncedInformerEndsTheController checks that Run returns the error of an informer that fails to sync before the
// controller's context ends.
func TestUnsyncedInformerEndsTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(newServer("a"), func(context.Context, configMap) error { return nil })
		c.Reads = []informer.Any{unsyncedInformer{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := newController(t, c).Run(ctx); err == nil || !strings.Contains(err.Error(), "it cannot sync") {
			t.Errorf("Run returned %v", err)
		}
	})
}

// The end of a controller is as visible in the log as its start, with its reason.
func TestStopIsLoggedWithReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		c.Logger = logs.logger(slog.LevelInfo)
		ctrl, err := controller.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- ctrl.Run(ctx) }() // waited for below
		time.Sleep(time.Second)
		stop(errors.New("signal terminated"))
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if lines := logs.take(); !strings.Contains(strings.Join(lines, "\n"), `level=INFO msg="controller stopped" controller=widgets reason="signal terminated"`) {
			t.Errorf("logged %q", lines)
		}
	})
}

// Two controllers of one name would be one in logs, metrics and Events. With leader election, replicas in one process may
// stand by; another cluster, and a later Run, may use the name.
func TestSecondControllerOfNameIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		handle := func(context.Context, unstructuredObject) error { return nil }
		w.run(w.config(handle))
		synctest.Wait()
		ctrl, err := controller.New(w.config(handle))
		if err != nil {
			t.Fatal(err)
		}
		if err := ctrl.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `another controller of the same kube.Cluster has the name "widgets"`) {
			t.Errorf("a second one: %v", err)
		}
		other := newWorld(t)
		other.run(other.config(handle))
		c := w.config(handle)
		c.Name = "other"
		w.run(c)
		synctest.Wait()
	})
}

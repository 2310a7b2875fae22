package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// newManager returns a manager with this cache and this client.
func (w *world) newManager(change func(*ctrl.Options)) ctrl.Manager {
	w.Helper()
	skip := true
	options := ctrl.Options{
		NewCache: controllerruntime.NewCache, NewClient: controllerruntime.NewClient,
		Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: &skip},
	}
	if change != nil {
		change(&options)
	}
	mgr, err := ctrl.NewManager(w.server.RESTConfig("operator"), options)
	w.must(err)
	return mgr
}

// run starts a manager. The returned function ends it, waits and returns its error.
func (w *world) run(mgr ctrl.Manager) (stop func() error) {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }() // waited for by stop
	time.Sleep(time.Second)                 // controller-runtime polls
	return func() error {
		cancel()
		return <-ended
	}
}

// runs is a Reconciler that records its requests.
type runs struct {
	result func(name string, run int) (ctrl.Result, error) // nil: success

	mu    sync.Mutex
	names []string       // guarded by mu
	count map[string]int // guarded by mu
}

func (r *runs) Reconcile(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	if r.count == nil {
		r.count = map[string]int{}
	}
	r.names = append(r.names, req.Name)
	r.count[req.Name]++
	run := r.count[req.Name]
	r.mu.Unlock()
	if r.result == nil {
		return ctrl.Result{}, nil
	}
	return r.result(req.Name, run)
}

// take returns the sorted names since the last call, when all goroutines are idle.
func (r *runs) take() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.names
	r.names = nil
	slices.Sort(names)
	return strings.Join(names, " ")
}

// inManager runs a test with a controller of a running manager.
func inManager(
	t *testing.T, r reconcile.Reconciler, set func(w *world, b *controllerruntime.Builder),
	test func(w *world, c *controller.Controller[controller.NoObject]),
) {
	t.Helper()
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(nil)
		b := controllerruntime.NewControllerManagedBy(mgr)
		set(w, b)
		c, err := b.Build(r)
		w.must(err)
		stop := w.run(mgr)
		test(w, c)
		w.must(stop())
	})
}

func (w *world) wantRuns(r *runs, want string) {
	w.Helper()
	if got := r.take(); got != want {
		w.Errorf("runs %q, want %q", got, want)
	}
}

// A controller brings back the children that another client changes, and explains its runs with their causes and writes.
func TestForAndOwns(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(nil)
		k := &keeper{Client: mgr.GetClient(), runs: map[string]int{}}
		c, err := controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Build(k)
		w.must(err)
		cm := configMap("shop", "a")
		w.create(cm)
		stop := w.run(mgr)
		if text := c.Explain(kube.KeyOf(cm)); !strings.Contains(text, "ConfigMap shop/a listed") {
			w.Errorf("Explain lacks the first list:\n%s", text)
		}
		key, secret := client.ObjectKeyFromObject(cm), &corev1.Secret{}
		for hour := range 24 {
			color := fmt.Sprint(hour)
			w.paint(cm, color)
			w.server.CloseWatches()
			if hour%3 == 0 {
				w.server.Compact()
			}
			time.Sleep(time.Hour)
			w.must(w.user.Get(w.Context(), key, secret))
			if got := string(secret.Data["color"]); got != color {
				w.Errorf("hour %d: the Secret has %s", hour, got)
			}
			if hour%4 == 0 {
				w.must(w.user.Delete(w.Context(), secret))
			}
		}
		secret.Data["color"] = []byte("grey")
		w.must(w.user.Update(w.Context(), secret))
		time.Sleep(time.Second)
		text := c.Explain(kube.KeyOf(cm))
		for _, want := range []string{"Secret shop/a updated (spec", "update Secret shop/a: done", " by user"} {
			if !strings.Contains(text, want) {
				w.Errorf("Explain lacks %q:\n%s", want, text)
			}
		}
		if k.runs["a"] > 100 {
			w.Errorf("%d runs", k.runs["a"])
		}
		w.must(stop())
	})
}

// The next run of a key begins when the informer shows what the last one wrote, if the client is that of NewClient. Own
// writes run the key again, because reconcilers of controller-runtime rely on their events.
func TestRunsSeeOwnWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		newClient client.NewClientFunc
		want      string
	}{"NewClient": {controllerruntime.NewClient, ""}, "client.New": {client.New, "a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				var warns atomic.Bool
				mgr := w.newManager(func(o *ctrl.Options) {
					o.NewClient = test.newClient
					o.Logger = funcr.New(func(_, args string) {
						if strings.Contains(args, "runs do not wait for own writes") {
							warns.Store(true)
						}
					}, funcr.Options{})
				})
				cm := configMap("shop", "a")
				r := &runs{result: func(_ string, run int) (result ctrl.Result, err error) {
					if run == 1 {
						result.RequeueAfter = 2 * time.Second
					}
					return result, nil
				}}
				writes := reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
					result, err := r.Reconcile(ctx, req)
					if !result.IsZero() {
						w.server.HoldWatches()
						cm.Data["color"] = "green"
						err = mgr.GetClient().Update(ctx, cm)
					}
					return result, err
				})
				w.must(controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(writes))
				w.create(cm)
				stop := w.run(mgr)
				w.wantRuns(r, "a")
				time.Sleep(5 * time.Second)
				w.wantRuns(r, test.want)
				w.server.ReleaseWatches()
				if got := r.take(); got != "a" && got != "a a" { // the event of the write may arrive later
					w.Errorf("runs %q, want a", got)
				}
				w.must(stop())
				if waits := test.want == ""; warns.Load() == waits {
					w.Errorf("a warning: %t, want %t", warns.Load(), !waits)
				}
			})
		})
	}
}

// Predicates get both states. Those of one kind do not filter the events of another, and event filters do.
func TestPredicates(t *testing.T) {
	t.Parallel()
	r := &runs{}
	turnsBlue := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.ConfigMap), e.ObjectNew.(*corev1.ConfigMap)
		return before.Data["color"] == "red" && after.Data["color"] == "blue"
	}}
	ignored := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()["ignored"] == "" })
	set := func(_ *world, b *controllerruntime.Builder) {
		b.For(&corev1.ConfigMap{}, builder.WithPredicates(turnsBlue)).
			Owns(&corev1.Secret{}, builder.OnlyMetadata, builder.MatchEveryOwner, builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool { _, ok := e.Object.(*metav1.PartialObjectMetadata); return ok },
			})).
			WithEventFilter(ignored)
	}
	inManager(t, r, set, func(w *world, _ *controller.Controller[controller.NoObject]) {
		a, b := configMap("shop", "a"), configMap("shop", "b", "ignored", "yes")
		w.create(a, b)
		w.wantRuns(r, "a")
		w.paint(a, "green")
		w.wantRuns(r, "")
		w.paint(a, "red")
		w.paint(a, "blue")
		w.wantRuns(r, "a")
		for name, labels := range map[string]map[string]string{"x": nil, "y": {"ignored": "yes"}} {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
			w.must(controllerutil.SetOwnerReference(a, secret, w.user.Scheme()))
			w.must(controllerutil.SetOwnerReference(b, secret, w.user.Scheme()))
			w.create(secret)
		}
		w.wantRuns(r, "a b")
	})
}

// Without MatchEveryOwner only the controller of an object is reconciled.
func TestOwnsEnqueuesController(t *testing.T) {
	t.Parallel()
	r := &runs{}
	set := func(_ *world, b *controllerruntime.Builder) { b.For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}) }
	inManager(t, r, set, func(w *world, _ *controller.Controller[controller.NoObject]) {
		a, b := configMap("shop", "a"), configMap("shop", "b")
		w.create(a, b)
		w.wantRuns(r, "a b")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}
		w.must(controllerutil.SetOwnerReference(a, secret, w.user.Scheme()))
		w.must(controllerutil.SetControllerReference(b, secret, w.user.Scheme()))
		w.create(secret)
		w.wantRuns(r, "b")
	})
}

// The event handlers of a program run unmodified, with the queue's delays and priorities.
func TestWatches(t *testing.T) {
	t.Parallel()
	r := &runs{}
	high := 5
	var kept workqueue.TypedRateLimitingInterface[ctrl.Request]
	request := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}
	}
	set := func(_ *world, b *controllerruntime.Builder) {
		mapped := ctrlhandler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []ctrl.Request {
			return []ctrl.Request{request(obj.(*corev1.ConfigMap).Data["color"])}
		})
		b.Named("mapped").Watches(&corev1.ConfigMap{}, mapped).Watches(&corev1.Secret{}, ctrlhandler.Funcs{
			CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
				kept = q
				q.AddAfter(request("later"), time.Minute)
				q.AddRateLimited(request("limited"))
				q.(priorityqueue.PriorityQueue[ctrl.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: &high}, request("first"))
			},
			DeleteFunc: func(context.Context, event.DeleteEvent, workqueue.TypedRateLimitingInterface[ctrl.Request]) {
				kept.Add(request("kept"))
			},
		})
	}
	inManager(t, r, set, func(w *world, c *controller.Controller[controller.NoObject]) {
		cm := configMap("shop", "a")
		w.create(cm)
		w.wantRuns(r, "red")
		w.paint(cm, "blue")
		w.wantRuns(r, "blue red")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}
		w.create(secret)
		w.wantRuns(r, "first")
		time.Sleep(5 * time.Millisecond)
		w.wantRuns(r, "limited")
		time.Sleep(time.Minute)
		w.wantRuns(r, "later")
		w.must(w.user.Delete(w.Context(), secret))
		w.wantRuns(r, "kept")
		if text := c.Explain(kube.Key{Namespace: "shop", Name: "kept"}); strings.Contains(text, "Secret") {
			w.Errorf("a queue that a handler kept has the cause of an earlier event:\n%s", text)
		}
		w.must(w.user.Delete(w.Context(), cm))
		w.wantRuns(r, "blue")
	})
}

// Results, errors and panics determine the next run.
func TestResults(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	for name, test := range map[string]struct {
		result  func(run int) (ctrl.Result, error)
		options ctrlcontroller.Options
		within  time.Duration
		want    int
	}{
		"success":      {within: time.Hour, want: 1},
		"RequeueAfter": {result: func(int) (ctrl.Result, error) { return ctrl.Result{RequeueAfter: 10 * time.Minute}, nil }, within: 59 * time.Minute, want: 6},
		"terminal":     {result: func(int) (ctrl.Result, error) { return ctrl.Result{}, reconcile.TerminalError(failure) }, within: time.Hour, want: 1},
		"wrapped": {result: func(int) (ctrl.Result, error) {
			return ctrl.Result{}, fmt.Errorf("x: %w", reconcile.TerminalError(nil))
		}, within: time.Hour, want: 1},
		"error once":     {result: once(failure), within: time.Second, want: 2},
		"panic once":     {result: func(run int) (ctrl.Result, error) { return once(nil)(run) }, within: time.Second, want: 2},
		"Requeue":        {result: func(int) (ctrl.Result, error) { return ctrl.Result{Requeue: true}, nil }, within: time.Second, want: 8}, //nolint:staticcheck // programs use it
		"error, limited": {result: func(int) (ctrl.Result, error) { return ctrl.Result{RequeueAfter: 1}, failure }, options: every(time.Minute, 0), within: 5*time.Minute - time.Second, want: 5},
		"timeout, limited": {result: func(int) (ctrl.Result, error) {
			time.Sleep(2 * time.Second)
			return ctrl.Result{}, failure
		}, options: every(time.Second, time.Second), within: time.Minute - time.Second, want: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &runs{result: func(_ string, run int) (ctrl.Result, error) {
				if test.result == nil {
					return ctrl.Result{}, nil
				}
				return test.result(run)
			}}
			set := func(_ *world, b *controllerruntime.Builder) { b.For(&corev1.ConfigMap{}).WithOptions(test.options) }
			inManager(t, r, set, func(w *world, c *controller.Controller[controller.NoObject]) {
				w.create(configMap("shop", "a"))
				time.Sleep(test.within)
				if all := c.RecentRuns(); test.options.ReconciliationTimeout > 0 && all[1].Outcome != controller.OutcomeTimeout {
					w.Errorf("the outcome is %s", all[1].Outcome)
				}
				if n := strings.Count(r.take(), "a"); n != test.want {
					w.Errorf("%d runs in %s, want %d", n, test.within, test.want)
				}
			})
		})
	}
}

// once fails in the first run: with err, or by a panic.
func once(err error) func(run int) (ctrl.Result, error) {
	return func(run int) (ctrl.Result, error) {
		switch {
		case run > 1:
			return ctrl.Result{}, nil
		case err == nil:
			panic("failed")
		}
		return ctrl.Result{}, err
	}
}

// every returns options with a constant delay of retries.
func every(delay, timeout time.Duration) ctrlcontroller.Options {
	return ctrlcontroller.Options{
		RateLimiter:           workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](delay, delay),
		ReconciliationTimeout: timeout,
	}
}

// The options of a controller, and those of the manager for all of them, have their effect.
func TestOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		of      ctrlcontroller.Options
		manager config.Controller
	}{
		"of the controller":       {of: ctrlcontroller.Options{MaxConcurrentReconciles: 2}, manager: config.Controller{MaxConcurrentReconciles: 3}},
		"of the manager":          {manager: config.Controller{MaxConcurrentReconciles: 2}},
		"of the manager, by kind": {manager: config.Controller{GroupKindConcurrency: map[string]int{"ConfigMap": 2}, MaxConcurrentReconciles: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testWorkers(t, test.of, test.manager)
		})
	}
}

// testWorkers fails unless two runs are made at once, each of at most 1 min.
func testWorkers(t *testing.T, of ctrlcontroller.Options, all config.Controller) {
	t.Helper()
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(func(o *ctrl.Options) {
			all.SkipNameValidation, all.ReconciliationTimeout = o.Controller.SkipNameValidation, time.Minute
			o.Controller = all
		})
		var mu sync.Mutex
		atOnce, most := 0, 0
		r := reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			mu.Lock()
			atOnce++
			most = max(most, atOnce)
			mu.Unlock()
			began := time.Now()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			atOnce--
			if d := time.Since(began); d != time.Minute && w.Context().Err() == nil && !errors.Is(ctx.Err(), context.Canceled) {
				w.Errorf("cancelled after %s", d)
			}
			return ctrl.Result{}, reconcile.TerminalError(ctx.Err())
		})
		w.must(controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(of).Complete(r))
		stop := w.run(mgr)
		for i := range 5 {
			w.create(configMap("shop", fmt.Sprint(i)))
		}
		time.Sleep(150 * time.Second)
		w.must(stop()) // contexts of runs are cancelled
		if most != 2 {
			w.Errorf("%d runs at once, want 2", most)
		}
	})
}

// A run that writes its own object runs again, even if the event arrives during the run: many reconcilers add a finalizer
// and return.
func TestOwnWritesRunKeyAgain(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		mgr, r := w.newManager(nil), &runs{}
		adds := reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			var cm corev1.ConfigMap
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil {
				return ctrl.Result{}, err
			}
			if controllerutil.AddFinalizer(&cm, "example.com/x") {
				err := mgr.GetClient().Update(ctx, &cm)
				time.Sleep(time.Second)
				return ctrl.Result{}, err
			}
			return r.Reconcile(ctx, req)
		})
		w.must(controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(adds))
		w.create(configMap("shop", "a"))
		stop := w.run(mgr)
		time.Sleep(time.Minute)
		w.wantRuns(r, "a")
		w.must(stop())
	})
}

// No worker takes the place of one that does not return. The end of the manager cancels runs, and waits for them.
func TestRunsThatDoNotReturn(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		grace := time.Hour
		mgr := w.newManager(func(o *ctrl.Options) { o.GracefulShutdownTimeout = &grace })
		ended := false
		r := reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			<-ctx.Done()
			time.Sleep(40 * time.Second)
			ended = true
			return ctrl.Result{}, nil
		})
		c, err := controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Build(r)
		w.must(err)
		w.create(configMap("shop", "a"), configMap("shop", "b"))
		stop := w.run(mgr)
		time.Sleep(10 * time.Minute)
		if n := len(c.RecentRuns()); n != 1 {
			w.Errorf("%d runs, want 1", n)
		}
		w.must(stop())
		if !ended {
			w.Error("the run has not ended")
		}
	})
}

// A resync of the cache reconciles each object. The controller has none of its own.
func TestCacheResyncs(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		period := time.Hour
		mgr := w.newManager(func(o *ctrl.Options) { o.Cache.SyncPeriod = &period })
		r := &runs{}
		c, err := controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Build(r)
		w.must(err)
		cm := configMap("shop", "a")
		w.create(cm)
		stop := w.run(mgr)
		w.wantRuns(r, "a")
		time.Sleep(50 * time.Minute) // the period is 54 to 66 min
		w.wantRuns(r, "")
		time.Sleep(20 * time.Minute)
		w.wantRuns(r, "a")
		if text := c.Explain(kube.KeyOf(cm)); !strings.Contains(text, "resync of the cache") {
			w.Errorf("Explain lacks the resync:\n%s", text)
		}
		w.must(stop())
	})
}

// The logger of a run has the values of controller-runtime. An error is logged once.
func TestLoggerInContext(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	logger := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(func(o *ctrl.Options) { o.Logger = logger })
		r := reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			ctrl.LoggerFrom(ctx).Info("here", "same", strings.Contains(fmt.Sprint(ctrlcontroller.ReconcileIDFromContext(ctx)), "-"))
			return ctrl.Result{}, errors.New("broken")
		})
		w.must(controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(r))
		w.create(configMap("shop", "a"))
		stop := w.run(mgr)
		w.must(stop())
		want := `"msg"="here" "controller"="configmap" "controllerGroup"="" "controllerKind"="ConfigMap" ` +
			`"ConfigMap"={"name"="a" "namespace"="shop"} "namespace"="shop" "name"="a" "reconcileID"="`
		mu.Lock()
		defer mu.Unlock()
		text := strings.Join(lines, "\n")
		if n, failed := strings.Count(text, `"here"`), strings.Count(text, "broken"); n != failed {
			w.Errorf("%d lines with the errors of %d runs:\n%s", failed, n, text)
		}
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, want) && strings.HasSuffix(line, `"same"=true`) }) {
			w.Errorf("no line with %s in\n%s", want, text)
		}
	})
}

// The metrics of controller-runtime count the runs.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := &runs{result: func(_ string, run int) (ctrl.Result, error) { return once(nil)(run) }}
	name := fmt.Sprintf("counted_%p", r) // the registry is that of the process
	set := func(_ *world, b *controllerruntime.Builder) { b.For(&corev1.ConfigMap{}).Named(name) }
	inManager(t, r, set, func(w *world, _ *controller.Controller[controller.NoObject]) {
		w.create(configMap("shop", "a"), configMap("shop", "b"))
		time.Sleep(time.Second)
		families, err := metrics.Registry.Gather()
		w.must(err)
		var counts []string
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if value := metric.GetCounter().GetValue(); strings.Contains(metric.String(), name) && value > 0 {
					counts = append(counts, fmt.Sprint(family.GetName(), " ", value))
				}
			}
		}
		want := []string{
			"controller_runtime_reconcile_errors_total 2", "controller_runtime_reconcile_panics_total 2",
			"controller_runtime_reconcile_total 2", "controller_runtime_reconcile_total 2",
		}
		if !slices.Equal(counts, want) {
			w.Errorf("counters %q, want %q", counts, want)
		}
	})
}

// A controller waits for leadership unless it does not need it. With EnableWarmup its caches fill before.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		no, yes := false, true
		elected := func(o *ctrl.Options) {
			o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "operator", "shop"
			o.LeaderElectionReleaseOnCancel = true
		}
		first := w.newManager(elected)
		stopFirst := w.run(first)
		mgr := w.newManager(elected)
		always, leading, warm := &runs{}, &runs{}, &runs{}
		build := func(name string, r *runs, object client.Object, options ctrlcontroller.Options) {
			w.must(controllerruntime.NewControllerManagedBy(mgr).Named(name).For(object).WithOptions(options).Complete(r))
		}
		build("always", always, &corev1.ConfigMap{}, ctrlcontroller.Options{NeedLeaderElection: &no})
		build("leading", leading, &corev1.ConfigMap{}, ctrlcontroller.Options{})
		build("warm", warm, &corev1.Secret{}, ctrlcontroller.Options{EnableWarmup: &yes})
		w.create(configMap("shop", "a"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}})
		stop := w.run(mgr)
		time.Sleep(time.Minute)
		w.wantRuns(always, "a")
		w.wantRuns(leading, "")
		w.wantRuns(warm, "")
		if n := w.server.OpenWatches(corev1.Resource("secrets")); n != 1 {
			w.Errorf("%d watches of the kind that warms up, want 1", n)
		}
		w.must(stopFirst())
		time.Sleep(time.Minute)
		w.wantRuns(always, "")
		w.wantRuns(leading, "a")
		w.wantRuns(warm, "x")
		w.must(stop())
	})
}

// One controller of a manager can run on the engine, while another one stays with controller-runtime.
func TestTwoEnginesInOneManager(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		for _, newCache := range []bool{true, false} {
			mgr := w.newManager(func(o *ctrl.Options) {
				if !newCache {
					o.NewCache, o.NewClient = nil, nil
				}
			})
			ours, theirs := &runs{}, &runs{}
			w.must(controllerruntime.NewControllerManagedBy(mgr).Named("ours").For(&corev1.ConfigMap{}).Complete(ours))
			w.must(ctrl.NewControllerManagedBy(mgr).Named("theirs").For(&corev1.ConfigMap{}).Complete(theirs))
			cm := configMap("shop", "a")
			w.create(cm)
			stop := w.run(mgr)
			for range 3 {
				w.wantRuns(ours, "a")
				w.wantRuns(theirs, "a")
				w.paint(cm, cm.Data["color"]+"er")
			}
			w.must(w.user.Delete(w.Context(), cm))
			time.Sleep(time.Second)
			w.must(stop())
		}
	})
}

// A kind that cannot be listed ends the manager after CacheSyncTimeout.
func TestCacheSyncTimeout(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(nil)
		r := &runs{}
		w.must(controllerruntime.NewControllerManagedBy(mgr).For(&corev1.Service{}).
			WithOptions(ctrlcontroller.Options{CacheSyncTimeout: time.Minute}).Complete(r))
		stop := w.run(mgr)
		time.Sleep(2 * time.Minute)
		wantError(w, stop(), "failed to wait for service caches to sync")
	})
}

func TestMistakesInBuilder(t *testing.T) {
	t.Parallel()
	no := false
	newQueue := func(string, workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		return nil
	}
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(nil)
		cm := &corev1.ConfigMap{}
		for _, test := range []struct {
			set  func(b *controllerruntime.Builder)
			r    reconcile.Reconciler
			want []string
		}{
			{func(*controllerruntime.Builder) {}, nil, []string{"the Reconciler is nil", "For or Watches is required", "For or Named is required"}},
			{func(b *controllerruntime.Builder) { b.For(cm).For(cm).Named("x") }, &runs{}, []string{`build controller "x": `, "For was called twice"}},
			{func(b *controllerruntime.Builder) { b.For(cm, option{}).Owns(cm, option{}) }, &runs{}, []string{
				"For: the option controllerruntime_test.option cannot be mapped", "Owns: the option controllerruntime_test.option cannot be mapped",
			}},
			{func(b *controllerruntime.Builder) { b.Named("x").Owns(cm) }, &runs{}, []string{"Owns needs For"}},
			{func(b *controllerruntime.Builder) { b.Named("x").Watches(nil, nil) }, &runs{}, []string{"Watches: the object is nil", "the event handler is nil"}},
			{func(b *controllerruntime.Builder) {
				b.For(cm).WithOptions(ctrlcontroller.Options{NewQueue: newQueue, UsePriorityQueue: &no, Reconciler: &runs{}})
			}, &runs{}, []string{"NewQueue cannot be mapped", "UsePriorityQueue false cannot be mapped", "set in Options too"}},
			{func(b *controllerruntime.Builder) { b.For(&named{}) }, &runs{}, []string{"find the kind of a *controllerruntime_test.named"}},
		} {
			b := controllerruntime.NewControllerManagedBy(mgr)
			test.set(b)
			wantError(w, b.Complete(test.r), test.want...)
		}
		wantError(w, controllerruntime.NewControllerManagedBy(nil).For(cm).Complete(&runs{}), "the Manager is nil")
	})
}

// option is an option of a program.
type option struct{}

func (option) ApplyToFor(*builder.ForInput)   {}
func (option) ApplyToOwns(*builder.OwnsInput) {}

func TestMistakesInClientConfig(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]*rest.Config{
		"the rest.Config is nil":         nil,
		"find the URL of the API server": {Host: "https://::1"},
		"make an HTTP client: ":          {TLSClientConfig: rest.TLSClientConfig{CAFile: "missing"}},
	} {
		_, err := controllerruntime.NewClient(config, client.Options{Scheme: runtime.NewScheme()})
		wantError(t, err, "new client: "+want)
	}
}

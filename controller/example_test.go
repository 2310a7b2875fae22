package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// fakePods returns a Retriever of the given Pods in a fake clientset of client-go. In a cluster, use
// informer.Retrieve[*corev1.Pod](cluster).
func fakePods(names ...string) informer.Retriever[*corev1.Pod] {
	client := fake.NewClientset()
	for _, name := range names {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		if err := client.Tracker().Add(pod); err != nil {
			panic(err)
		}
	}
	pods := client.CoreV1().Pods("shop")
	return informer.FromListerWatcher[*corev1.Pod](cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: pods.Watch,
	}, client))
}

// runFor runs a controller until an example is done.
func runFor[T kube.Object](config controller.Config[T], done <-chan struct{}) {
	config.Logger = slog.New(slog.DiscardHandler)
	ctrl, err := controller.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the example
		<-done
		cancel()
	}()
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

// A controller needs a Retriever and a Handler.
func ExampleNew() {
	done := make(chan struct{})
	runFor(controller.Config[*corev1.Pod]{
		Name:      "pod-printer",
		Retriever: fakePods("web"),
		Handler: func(_ context.Context, pod *corev1.Pod) error {
			fmt.Println(pod.Name, "is", pod.Status.Phase)
			close(done)
			return nil
		},
	}, done)
	// Output: web is Running
}

// New returns all mistakes in a Config at once, before anything runs.
func ExampleNew_mistakes() {
	_, err := controller.New(controller.Config[*corev1.Pod]{Workers: -1, Handler: nil})
	fmt.Println(err)
	// Output:
	// new controller "": Name is required: it identifies the controller in logs, metrics and readiness
	// Cluster (or Retriever, or Informer) is required: kube.Connect returns a Cluster
	// Handler (or Reconciler) is required
	// Workers is -1: at least one is needed (0 means 3)
}

// All controllers have a Timeout, and those of Pods also have more workers.
func ExampleSetDefaults() {
	cluster, err := kube.Connect(&rest.Config{Host: "https://cluster.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(
		controller.SetDefaults(cluster, controller.Config[controller.NoObject]{Timeout: time.Minute}),
		controller.SetDefaults(cluster, controller.Config[*corev1.Pod]{Workers: 10}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctrl, err := controller.New(controller.Config[*corev1.Pod]{
		Name: "pods", Cluster: cluster,
		Handler: func(context.Context, *corev1.Pod) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ctrl.Stats().Workers, "workers")
	// Output: 10 workers
}

// A failed run is retried, and RunRecord.Attempt has the number of failures so far. RequeueAfter delays the next run
// without a failure. Terminal marks an error that a retry cannot fix.
func ExampleHandler_answers() {
	done := make(chan struct{})
	steps := 0
	runFor(controller.Config[*corev1.Pod]{
		Name:      "answers",
		Retriever: fakePods("web"),
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Printf("%s, attempt %d: %s\n", pod.Name, run.Attempt, run.Causes)
			steps++
			switch steps {
			case 1:
				return errors.New("the disk is not there yet")
			case 2:
				return controller.RequeueAfter(10*time.Millisecond, "the disk is being formatted")
			}
			close(done)
			return controller.Terminal(errors.New("the disk is too small"))
		},
	}, done)
	// Output:
	// web, attempt 0: listed
	// web, attempt 1: retry 1 (error)
	// web, attempt 0: requeue (the disk is being formatted)
}

// Middleware wraps a Handler; the first one is the outermost.
func ExampleChain() {
	done := make(chan struct{})
	announce := func(next controller.Handler[*corev1.Pod]) controller.Handler[*corev1.Pod] {
		return func(ctx context.Context, pod *corev1.Pod) error {
			fmt.Println("begin", pod.Name)
			defer close(done)
			err := next(ctx, pod)
			fmt.Println("end:", err)
			return err
		}
	}
	runFor(controller.Config[*corev1.Pod]{
		Name:      "chain",
		Retriever: fakePods("web"),
		Handler: controller.Chain(func(context.Context, *corev1.Pod) error {
			panic("out of order")
		}, announce, middleware.Recover[*corev1.Pod]()),
		Retry: retry.Config{Every: retry.Policy{Base: time.Minute}},
	}, done)
	// Output:
	// begin web
	// end: handler panicked: out of order
}

// A source enqueues keys for reasons outside the cluster.
func ExampleSource() {
	done := make(chan struct{})
	bell := make(chan kube.Key)
	runFor(controller.Config[*corev1.Pod]{
		Name:      "bell",
		Retriever: fakePods("web"),
		Sources:   []controller.Source{source.Channel("the bell", bell)},
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Println(run.Causes)
			if run.Causes.Has("listed") {
				go func() { bell <- kube.KeyOf(pod) }() // ends when the source has received it
				return nil
			}
			close(done)
			return nil
		},
	}, done)
	// Output:
	// listed
	// the bell: triggered
}

// A source can delay a key: an external system needs some time before it shows an effect.
func ExampleTrigger() {
	done := make(chan struct{})
	orders := make(chan kube.Key, 1)
	fromOrders := controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case key := <-orders:
				enqueue(key, controller.Trigger{After: 50 * time.Millisecond, Detail: "ordered"})
			}
		}
	})
	runFor(controller.Config[*corev1.Pod]{
		Name:      "orders",
		Retriever: fakePods("web"),
		Sources:   []controller.Source{fromOrders},
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Println(run.Causes)
			if run.Causes.Has(controller.CauseTriggered) {
				close(done)
			} else {
				orders <- kube.KeyOf(pod)
			}
			return nil
		},
	}, done)
	// Output:
	// listed
	// func: triggered (ordered)
}

// A SourceFunc enqueues the keys of objects from a channel, with a filter, a priority and a detail for the cause.
func ExampleSourceFunc() {
	done := make(chan struct{})
	reports := make(chan *corev1.Pod)
	fromReports := controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case pod := <-reports:
				if pod.Status.Phase != corev1.PodFailed { // the predicate
					continue
				}
				enqueue(kube.KeyOf(pod), controller.Trigger{Priority: controller.PriorityHigh, Detail: pod.Status.Reason})
			}
		}
	})
	runFor(controller.Config[*corev1.Pod]{
		Name:      "reports",
		Retriever: fakePods("web"),
		Sources:   []controller.Source{fromReports},
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Println(run.Causes)
			if !run.Causes.Has("listed") {
				close(done)
				return nil
			}
			running, failed := pod.DeepCopy(), pod.DeepCopy()
			failed.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
			go func() { // ends when the source has received both
				reports <- running
				reports <- failed
			}()
			return nil
		},
	}, done)
	// Output:
	// listed
	// func: triggered (Evicted)
}

// A handler that needs two steps in one run, of which the second reads what the first has written, waits in between.
func ExampleWaitForOwnWrites() {
	server := apitest.New(apitest.Pods(), apiserver.ConfigMaps())
	server.Edit("pods", kube.Key{Namespace: "shop", Name: "web-0"}, "somebody", func(map[string]any) bool { return true })
	cluster, err := kube.Connect(server.Config("shop-operator")) // in a program: its rest.Config
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		fmt.Println(err)
		return
	}
	configs, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	runFor(controller.Config[*corev1.Pod]{
		Name:      "pods",
		Retriever: informer.Retrieve[*corev1.Pod](cluster),
		Reads:     []informer.Any{configs},
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			defer close(done)
			for _, part := range []string{"a", "b"} {
				config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + part}}
				if _, err := client.Create(ctx, c, config); err != nil {
					return err
				}
			}
			if err := controller.WaitForOwnWrites(ctx); err != nil {
				return err
			}
			n, err := configs.Count(informer.Query{Namespace: pod.Namespace})
			fmt.Println(n, "ConfigMaps")
			return err
		},
	}, done)
	// Output: 2 ConfigMaps
}

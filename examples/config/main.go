// Command config shows every field of controller.Config. None but Name, Retriever and
// Handler is needed: the zero value of each is its default.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "config:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("config", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps and of the lease")
	_ = flags.Parse(args) // exits on an error

	logger := slog.New(slog.NewTextHandler(out, nil))
	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{Cluster: cluster, Namespace: *namespace, Name: "config-example", Logger: logger})
	if err != nil {
		return err
	}
	recorder, err := metrics.New(metrics.Config{Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}

	events, err := event.New(event.Config{Cluster: cluster, Controller: "config-example", Logger: logger})
	if err != nil {
		return err
	}
	services, err := informer.New(informer.Config[*corev1.Service]{
		Name:      "config-example-services",
		Retriever: informer.RetrieveSelected[*corev1.Service](cluster, informer.Selection{Namespaces: []string{*namespace}}),
		Metrics:   recorder,
		Logger:    logger,
	})
	if err != nil {
		return err
	}

	// region config
	config := controller.Config[*corev1.ConfigMap]{
		// Tells the controller from others in logs, metrics and readiness.
		Name: "config-example",
		// What is listed and watched: here one namespace, and one label.
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, informer.Selection{
			Namespaces:    []string{*namespace},
			LabelSelector: "example=config",
		}),
		// A cache that others use as well, in place of Retriever.
		Informer: nil,
		// Further caches that the handler reads from: they are listed before it is called.
		Reads: []controller.Readable{services},
		// What is called with each object. Middleware wraps it; the first is outermost.
		Handler: controller.Chain(handler(services),
			middleware.Log[*corev1.ConfigMap](nil)),
		// What is called with each key, also of objects that are gone, in place of Handler.
		Reconciler: nil,
		// Which changes of the objects make them run: here those of more than the metadata
		// (default: all).
		Predicate: predicate.SpecChanged[*corev1.ConfigMap](),
		// What else makes objects run: here a clock, in real life a queue or a webhook.
		Sources: []controller.Source{clock(time.Second, kube.Key{Namespace: *namespace, Name: "watched"})},

		// So many objects are handled at the same time (default 3).
		Workers: 5,
		// Each object is handled again once per interval (default 3 min;
		// negative: never), for what no event tells.
		ResyncInterval: 10 * time.Minute,
		// An object that changes again and again is handled when it has been quiet for so long
		// (default: at once).
		Debounce: 100 * time.Millisecond,
		// How urgent a change is (default: lists and resyncs are low, all else is normal): here,
		// what is being deleted comes first.
		Priority: func(change informer.Change) workqueue.Priority {
			if change.Changed(kube.ChangedDeletion) != 0 {
				return workqueue.PriorityHigh
			}
			return workqueue.PriorityNormal
		},
		// Which objects take turns with which (default: those of each namespace), and how many
		// of one group are handled at the same time (default: as many as there are workers).
		Group:      func(key kube.Key) string { return key.Namespace },
		GroupLimit: 4,

		// When a failed object is tried again.
		Retry: retry.Config{
			// What class an error is of; "" leaves it to the default.
			Classify: func(err error) retry.Class {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return "vendor"
				}
				return ""
			},
			// For every class: the delays grow by half from 100 ms to 1 min (the defaults
			// depend on the class), each up to half shorter at random, and end after 20
			// retries (default: never). The first failure is logged at debug level. A server's
			// Retry-After counts.
			Every: retry.Policy{
				Base: 100 * time.Millisecond, Max: time.Minute, Factor: 1.5, Jitter: 0.5, MaxRetries: 20,
				QuietFailures: 1, IgnoreRetryAfter: false,
			},
			// For single classes.
			Policies: retry.Policies{"vendor": {Base: time.Second}},
		},
		// What ends the wait for a retry early (default: a change of the object itself).
		WakeOn: controller.WakeOnOwnChange,
		// Whether the changes that the handler itself makes run it again (default: no).
		HandleOwnWrites: false,
		// An object whose last run has written something waits until the caches show it, for
		// so long at the most (default 10 s; negative: it does not wait).
		ConsistencyTimeout: 5 * time.Second,
		// What is called for an object that has gone, with the last state that is known.
		Deleted: func(ctx context.Context, last *corev1.ConfigMap, stale bool) error {
			controller.LoggerFrom(ctx).InfoContext(ctx, "a ConfigMap has gone", "keys", len(last.Data), "stale", stale)
			return nil
		},
		// A handler that does not return for so long is reported with its stack, and another
		// worker takes its place (default 5 min; negative: never). It makes the program unready
		// (default: it does not).
		StuckAfter:       2 * time.Minute,
		UnreadyWhenStuck: true,
		// A handler that takes longer has its context cancelled (default: never).
		Timeout: 30 * time.Second,
		// At the end, handlers that are under way may take so long to finish (default
		// 25 s, which fits the 30 s that a Pod is given).
		DrainTimeout: 5 * time.Second,
		// Whether the objects that are due then are still handled (default: the next start
		// handles every object).
		DrainQueue: false,

		// Of several replicas, one works (default: each does).
		LeaderElector: elector,
		// Where measurements go (default: nowhere).
		Metrics: recorder,
		// Where Events about objects in trouble go (default: nowhere).
		Events: events,
		// Where the log goes (default: slog.Default()).
		Logger: logger,
	}
	// endregion
	ctrl, err := controller.New(config)
	if err != nil {
		return err
	}
	// Events are sent until the controller has ended, for whatever reason: its last handlers may
	// be the ones in trouble.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	var recording sync.WaitGroup
	recording.Go(func() { _ = events.Run(sending) }) // waited for below; its end sends what is left
	err = ctrl.Run(ctx)
	stop()
	recording.Wait()
	return err
}

func handler(services *informer.Informer[*corev1.Service]) controller.Handler[*corev1.ConfigMap] {
	return controller.HandlerFunc[*corev1.ConfigMap](func(ctx context.Context, configMap *corev1.ConfigMap) error {
		controller.LoggerFrom(ctx).InfoContext(ctx, "a ConfigMap", "keys", len(configMap.Data), "services", services.Len())
		return nil
	})
}

// clock enqueues the key every interval.
func clock(interval time.Duration, key kube.Key) controller.Source {
	return controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				enqueue(key, controller.Trigger{Detail: "clock"})
			}
		}
	})
}

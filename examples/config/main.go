// Command config shows every field of controller.Config. Required are only Name, one of Cluster, Retriever and
// Informer, and one of Handler and Reconciler. The zero value of each other field is its default.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/retry"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "config:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string, out io.Writer) error { //nolint:funlen // one literal shows every field
	flags := flag.NewFlagSet("config", flag.ExitOnError)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps and of the lease")
	stateDir := flags.String("state-dir", "", "an existing folder for files about the keys in work (default: none)")
	var options manager.Options
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(out, nil))
	cluster.SetLogger(logger) // of all that follows, in place of that of the options
	elector, err := leader.New(leader.Config{
		Cluster: cluster, Namespace: *namespace, Name: "config-example",
	})
	if err != nil {
		return err
	}
	recorder, err := metrics.New(metrics.Config{Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}

	events, err := event.New(event.Config{Cluster: cluster, Controller: "config-example"})
	if err != nil {
		return err
	}
	services, err := informer.New(informer.Config[*corev1.Service]{
		Name: "config-example-services",
		Retriever: informer.RetrieveSelected[*corev1.Service](cluster,
			kube.Selection{Namespaces: []string{*namespace}}),
		Metrics: recorder,
	})
	if err != nil {
		return err
	}

	config := controller.Config[*corev1.ConfigMap]{
		// The name of the controller in logs, metrics and readiness.
		Name: "config-example",
		// The objects to list and watch: here one namespace and one label.
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{
			Namespaces:    []string{*namespace},
			LabelSelector: "example=config",
		}),
		// A cache that is shared with other users, instead of Retriever.
		Informer: nil,
		// The cluster: all objects of the type, instead of Retriever.
		Cluster: nil,
		// Whether the controller is ready while the objects cannot be read (default: it waits).
		Optional: false,
		// Further caches that the handler reads from. They are listed before the first call of the handler.
		Reads: []informer.Any{services},
		// The function that is called with each object. Middleware wraps it; the first one is outermost.
		Handler: controller.Chain(handler(services),
			middleware.Log[*corev1.ConfigMap](nil)),
		// The function that is called with each key, also for deleted objects, instead of Handler.
		Reconciler: nil,
		// The changes of the objects that lead to a run: here changes of anything but metadata (default: all).
		Predicate: predicate.SpecChanged[*corev1.ConfigMap](),
		// Other reasons for a run: here a clock; in real programs for example a message queue or a webhook.
		Sources: []controller.Source{clock(time.Second, kube.Key{Namespace: *namespace, Name: "watched"})},

		// The number of objects that are handled at the same time (default 3).
		Workers: 5,
		// Each object is handled again once per interval (default 3 min; negative: never), for changes without an
		// event.
		ResyncInterval: 10 * time.Minute,
		Queue: controller.QueueConfig{
			// An object that changes repeatedly is handled after this time without a change (default: at once).
			Debounce: 100 * time.Millisecond,
			// The priority of a change (default: low for lists and resyncs, otherwise normal): here deletions come
			// first.
			Priority: func(change informer.Change) controller.Priority {
				if change.Changed(kube.ChangedDeletion) != 0 {
					return controller.PriorityHigh
				}
				return controller.PriorityNormal
			},
			// Groups of keys take turns (default: one group per namespace). GroupLimit is the number of objects of
			// one group that are handled at the same time (default: the number of workers).
			Group:      func(key kube.Key) string { return key.Namespace },
			GroupLimit: 4,
			// Ready objects wait for this limit (default: none): here 50 runs per second, and bursts of 100.
			Limiter: rate.NewLimiter(50, 100),
			// What ends a backoff early (default: mainly a change of the object itself): here also a listed object.
			EndBackoffIf: func(cause controller.Cause) bool { return cause.Source == controller.SourceSelf },
		},

		// When a failed object is retried.
		Retry: retry.Config{
			// The class of an error; "" falls back to the default classifier.
			Classify: func(err error) retry.Class {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return "vendor"
				}
				return ""
			},
			// For every class: delays grow by half from 100 ms to 1 min (the default depends on the class), each is
			// shortened at random by up to a half, and there are at most 20 retries (default: no limit). The first
			// failure is logged at debug level.
			Every: retry.Policy{
				Base: 100 * time.Millisecond, Max: time.Minute, Factor: 1.5, Jitter: 0.5, MaxRetries: 20,
				QuietFailures: 1,
			},
			// For single classes.
			Policies: map[retry.Class]retry.Policy{"vendor": {Base: time.Second}},
		},
		Runs: controller.RunsConfig{
			// A handler that does not return within this time is reported with its stack, and another worker replaces
			// it (default 5 min; negative: never). UnreadyWhenStuck makes the program unready then (default: it stays
			// ready).
			StuckAfter:       2 * time.Minute,
			UnreadyWhenStuck: true,
			// A key that runs again and again without progress is reported, and held back for up to MaxPause (default
			// 1 min; negative: never).
			MaxPause: 30 * time.Second,
			// Whether the handler's own writes lead to a run (default: no).
			HandleOwnWrites: false,
			// An object with writes in its last run waits until the caches contain them, at most this long (default
			// 10 s; negative: no wait).
			ConsistencyTimeout: 5 * time.Second,
			// The time for running handlers to finish at the end (default 25 s, which fits the 30 s grace period of a
			// Pod).
			DrainTimeout: 5 * time.Second,
			// Whether ready objects are still handled at the end (default: the next start handles every object).
			DrainQueue: false,
			// An existing folder for files about the keys in work. Keys that were in work when the process ended
			// without a shutdown, for example because one of them exhausted its memory, are handled last (default: no
			// files).
			StateDir: *stateDir,
			// Whether a panic of the handler ends the process, for debugging (default: it is an error of the object).
			PanicsEndProcess: false,
		},
		// The function that is called for a deleted object, with its last known state.
		Deleted: func(ctx context.Context, last *corev1.ConfigMap, stale bool) error {
			controller.LoggerFrom(ctx).InfoContext(ctx, "ConfigMap deleted", "keys", len(last.Data), "stale", stale)
			return nil
		},
		// A handler that takes longer is cancelled (default: never).
		Timeout: 30 * time.Second,
		// Run fails if the first lists take longer (default: it waits, and Ready names what is missing).
		SyncTimeout: 2 * time.Minute,

		// With several replicas, only the leader works (default: each replica works).
		LeaderElector: elector,
		// The metrics (default: those of the cluster).
		Metrics: recorder,
		// The recorder of Events about problems of objects (default: that of the cluster).
		Events: events,
		// The logger (default: that of the cluster).
		Logger: logger,
		// The logger of one run (default: Logger with the controller, the key and the ID of the run).
		RunLogger: func(logger *slog.Logger, run controller.RunRecord) *slog.Logger {
			return logger.With("attempt", run.Attempt)
		},
	}
	ctrl, err := controller.New(config)
	if err != nil {
		return err
	}
	m, err := options.New(cluster, manager.Config{Runnables: []manager.Runnable{
		// stops after the controller, and sends its last Events
		{Name: "events", Runner: events, Group: manager.Caches},
		{Runner: ctrl, Group: manager.Always}, // the controller has its own lease
	}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

func handler(services *informer.Informer[*corev1.Service]) controller.Handler[*corev1.ConfigMap] {
	return func(ctx context.Context, configMap *corev1.ConfigMap) error {
		controller.LoggerFrom(ctx).InfoContext(ctx, "handled a ConfigMap", "keys", len(configMap.Data), "services",
			services.Len())
		return nil
	}
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

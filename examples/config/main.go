// Command config shows every field of controller.Config. None but Name, Retriever and
// Handler is needed: the zero value of each is its default.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/predicate"
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
		// When a failed object is tried again. These delays double from 100 ms to 1 min
		// (default 5 ms to 1000 s), each up to half shorter at random (default 0.2), and
		// end after 20 retries (default: never).
		Retry: controller.Retry{Base: 100 * time.Millisecond, Max: time.Minute, Jitter: 0.5, MaxRetries: 20},
		// A handler that takes longer has its context cancelled (default: never).
		Timeout: 30 * time.Second,
		// At the end, handlers that are under way may take so long to finish (default
		// 25 s, which fits the 30 s that a Pod is given).
		DrainTimeout: 5 * time.Second,

		// Of several replicas, one works (default: each does).
		LeaderElector: elector,
		// Where measurements go (default: nowhere).
		Metrics: recorder,
		// Where the log goes (default: slog.Default()).
		Logger: logger,
	}
	// endregion
	ctrl, err := controller.New(config)
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

func handler(services *informer.Informer[*corev1.Service]) controller.Handler[*corev1.ConfigMap] {
	return controller.HandlerFunc[*corev1.ConfigMap](func(ctx context.Context, configMap *corev1.ConfigMap) error {
		run, _ := controller.RunFrom(ctx)
		run.Logger().InfoContext(ctx, "a ConfigMap", "keys", len(configMap.Data), "services", services.Len())
		return nil
	})
}

// clock enqueues the key every interval.
func clock(interval time.Duration, key kube.Key) controller.Source {
	return controller.SourceFunc(func(ctx context.Context, enqueue func(kube.Key, string)) error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				enqueue(key, "clock")
			}
		}
	})
}

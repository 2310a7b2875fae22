// Command metrics serves a controller's metrics for Prometheus, and its readiness.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("metrics", flag.ExitOnError)
	options := manager.Options{Listen: "127.0.0.1:9090"} // in a Pod, use --listen :9090
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(out, nil))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	cluster.SetLogger(logger)
	// Everything that works with the cluster has these metrics, also its requests and its leases.
	_, err = metrics.New(metrics.Config{Cluster: cluster, Registerer: registry, CompatibleNames: true})
	if err != nil {
		return err
	}
	ctrl, err := controller.New(controller.Config[*corev1.Namespace]{
		Name:    "namespaces",
		Cluster: cluster,
		Handler: func(context.Context, *corev1.Namespace) error { return nil },
	})
	if err != nil {
		return err
	}

	m, err := options.New(cluster, manager.Config{
		// OpenMetrics is required for exemplars.
		Handlers: map[string]http.Handler{"GET /metrics": promhttp.HandlerFor(registry,
			promhttp.HandlerOpts{EnableOpenMetrics: true})},
		Runnables: []manager.Runnable{{Runner: ctrl}},
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Command metrics serves a controller's metrics for Prometheus, and its readiness.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("metrics", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	listen := flags.String("listen", "127.0.0.1:9090", "the address of /metrics and /readyz; in a Pod, use :9090")
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		return err
	}
	ctrl, err := controller.New(controller.Config[*corev1.Namespace]{
		Name:    "namespaces",
		Cluster: cluster,
		Handler: func(context.Context, *corev1.Namespace) error { return nil },
		Metrics: recorder,
		Logger:  slog.New(slog.NewTextHandler(out, nil)),
	})
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})) // required for exemplars
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ctrl.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("serve metrics: %w: choose another address with --listen", err)
	}
	fmt.Fprintf(out, "serving http://%s/metrics\n", listener.Addr())
	return serveWhile(ctx, listener, mux, ctrl.Run)
}

// serveWhile serves until work has returned. The server ends last, so that the final metrics can still be scraped while
// the controller drains.
func serveWhile(ctx context.Context, listener net.Listener, handler http.Handler, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { // waited for below, through served
		served <- server.Serve(listener)
		stop() // ends the program if the server fails
	}()
	workErr := work(ctx)
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	shutdownErr := server.Shutdown(shutdown)
	serveErr := <-served
	if errors.Is(serveErr, http.ErrServerClosed) {
		serveErr = nil
	}
	return errors.Join(workErr, shutdownErr, serveErr)
}

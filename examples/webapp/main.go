// Command webapp is a typical operator: for each WebApp it maintains a Deployment, a Service, a ConfigMap and a record
// outside the cluster.
//
//	kubectl apply -f api/v1/crd.yaml -f config/rbac.yaml
//	go run . &
//	kubectl apply -f config/sample.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/leader"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "webapp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("webapp", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	records := flags.String("records", "http://127.0.0.1:8053", "URL of the records outside the cluster")
	listen := flags.String("listen", "127.0.0.1:8080", "address of /metrics and /readyz; in a Pod, use :8080")
	elect := flags.Bool("leader-elect", false, "let only one of several replicas work, with a lease in namespace "+operator.Name)
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig, v1.AddToScheme)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		return err
	}
	config := operator.Config{
		Records: operator.HTTPRecords{URL: *records, Client: &http.Client{Timeout: 10 * time.Second}},
		Metrics: recorder, Logger: slog.Default(),
	}
	if *elect {
		config.LeaderElector, err = leader.New(leader.Config{Cluster: cluster, Namespace: operator.Name, Name: operator.Name})
		if err != nil {
			return err
		}
	}
	ctrl, err := operator.New(cluster, config)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ctrl.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return serveWhile(ctx, *listen, mux, ctrl.Run)
}

// serveWhile serves until work has returned. The server ends last, so that the final metrics can still be scraped.
func serveWhile(ctx context.Context, address string, handler http.Handler, work func(context.Context) error) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w: choose another address with -listen", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { // waited for below, through served
		served <- server.Serve(listener)
		stop() // ends the program if the server fails
	}()
	err = errors.Join(work(ctx), server.Close())
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

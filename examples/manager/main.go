// Command manager is podprinter with flags, probes, metrics, leader election and signals.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func main() {
	options := manager.Options{Listen: ":8080", LeaderElect: true, LeaseName: "pod-printer"} // defaults of the flags
	check(options.Parse(flag.CommandLine, os.Args[1:]))
	cluster, err := options.Connect()
	check(err)
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	check(err)
	printer, err := controller.New(controller.Config[*corev1.Pod]{
		Name:    "pod-printer",
		Cluster: cluster,
		Handler: func(_ context.Context, pod *corev1.Pod) error {
			fmt.Printf("%s/%s is %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		},
		Metrics: recorder,
	})
	check(err)
	m, err := options.New(cluster, manager.Config{
		Handlers:  map[string]http.Handler{"GET /metrics": promhttp.HandlerFor(registry, promhttp.HandlerOpts{})},
		Runnables: []manager.Runnable{{Runner: printer}},
	})
	check(err)
	check(m.Run(context.Background()))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

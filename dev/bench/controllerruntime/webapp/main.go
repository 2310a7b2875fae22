// Command webapp is the operator of examples/webapp written on controller-runtime: docs/comparison.md compares them.
package main

import (
	"flag"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/operator"
)

func main() {
	options := ctrl.Options{LeaderElectionID: "webapp-operator", LeaderElectionReleaseOnCancel: true}
	var records string
	flag.StringVar(&records, "records", "http://127.0.0.1:8053", "URL of the records outside the cluster")
	flag.StringVar(&options.Metrics.BindAddress, "metrics", ":8080", "address of the metrics; 0 turns them off")
	flag.StringVar(&options.HealthProbeBindAddress, "health", ":8081", "address of the probes")
	flag.BoolVar(&options.LeaderElection, "leader-elect", false, "let one of several replicas work")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))

	manager, err := operator.NewManager(ctrl.GetConfigOrDie(), options,
		operator.HTTPRecords{URL: records, Client: &http.Client{Timeout: 10 * time.Second}})
	if err == nil {
		err = manager.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		slog.Error("the operator ends", "error", err)
		os.Exit(1)
	}
}

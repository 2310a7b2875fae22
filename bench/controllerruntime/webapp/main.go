// Command webapp is the operator of examples/webapp written on controller-runtime: docs/comparison.md compares them.
package main

import (
	"flag"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	v1 "github.com/evenkeel-go/evenkeel/bench/controllerruntime/webapp/api/v1"
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

	manager, err := newManager(ctrl.GetConfigOrDie(), options, HTTPRecords{URL: records, Client: &http.Client{Timeout: 10 * time.Second}})
	if err == nil {
		err = manager.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		slog.Error("the operator ends", "error", err)
		os.Exit(1)
	}
}

// newManager returns a manager with the operator in it.
func newManager(config *rest.Config, options ctrl.Options, records Records) (ctrl.Manager, error) {
	options.Scheme = runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(options.Scheme))
	utilruntime.Must(v1.AddToScheme(options.Scheme))
	// Without it a run can see the cluster as it was before the run before.
	consistent := true
	options.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: &consistent}

	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := manager.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return manager, (&Reconciler{Client: manager.GetClient(), Records: records}).SetupWithManager(manager)
}

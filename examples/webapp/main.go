// Command webapp is a typical operator: for each WebApp it maintains a Deployment, a Service, a ConfigMap and a record
// outside the cluster.
//
//	kubectl apply -f api/v1/webapp.example.com_webapps.yaml -f config/role.yaml -f config/rbac.yaml
//	go run . &
//	kubectl apply -f config/sample.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "webapp:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("webapp", flag.ExitOnError)
	records := flags.String("records", "http://127.0.0.1:8053", "URL of the records outside the cluster")
	var hooked webhooks
	flags.StringVar(&hooked.listen, "webhook-listen", "", "address of the webhook server, for example :9443 "+
		"(default: no webhooks)")
	flags.StringVar(&hooked.url, "webhook-url", "https://webapp-operator.webapp-operator.svc:9443",
		"URL at which the API server reaches the webhook server")
	flags.BoolVar(&hooked.storeV2, "store-v2", false, "store WebApps in v2; before, all replicas must have webhooks "+
		"(default: in v1)")
	flags.StringVar(&hooked.domain, "domain", "", "domain that a webhook appends to hosts without a dot "+
		"(default: none)")
	// in a Pod, use --listen :8080
	options := manager.Options{Listen: "127.0.0.1:8080", LeaseName: operator.Name, LeaseNamespace: operator.Name}
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect(v1.AddToScheme, v2.AddToScheme)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		return err
	}
	outside := &http.Client{Timeout: 10 * time.Second}
	ctrl, err := operator.New(cluster, operator.Config{
		Records: operator.HTTPRecords{URL: *records, Client: outside}, Metrics: recorder,
	})
	if err != nil {
		return err
	}
	runnables := []manager.Runnable{{Runner: ctrl}}
	if hooked.listen != "" {
		more, err := hooked.runnables(cluster, hooks.Config{
			WebApps: ctrl.Informer(), Owners: hooks.HTTPOwners{URL: *records, Client: outside}, Domain: hooked.domain,
		})
		if err != nil {
			return err
		}
		runnables = append(runnables, more...)
	}
	m, err := options.New(cluster, manager.Config{
		Handlers: map[string]http.Handler{"GET /metrics": promhttp.HandlerFor(registry,
			promhttp.HandlerOpts{EnableOpenMetrics: true})},
		Runnables: runnables,
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Command webapp is a typical operator: for each WebApp it maintains a Deployment, a Service, a ConfigMap and a record
// outside the cluster.
//
//	kubectl apply -f api/v1/webapp.example.com_webapps.yaml
//	go run . --lease-namespace=default &
//	kubectl apply -f config/sample.yaml
//
// Or with an image, in the cluster:
//
//	go run . manifests --image=IMAGE --namespace=webapp-operator -- --webhook-listen=:9443 | kubectl apply -f -
package main

import (
	"context"
	"net/http"
	"time"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
)

func main() { evenkeel.Main(operator.Name, run) }

func run(ctx context.Context, p *evenkeel.Program) error {
	url := p.Flags.String("records", "http://127.0.0.1:8053", "URL of the records outside the cluster")
	var w webhooks
	w.addFlags(p)
	p.Options.LeaseNamespace = operator.Name
	cluster, err := p.Connect(v1.AddToScheme, v2.AddToScheme)
	if err != nil {
		return err
	}
	records := operator.HTTPRecords{URL: *url, Client: &http.Client{Timeout: 10 * time.Second}}
	config := operator.Config(cluster, records)
	if err := w.addTo(p, &config, records); err != nil {
		return err
	}
	op, err := evenkeel.New(config)
	if err != nil {
		return err
	}
	if err := w.rules.Read(op.Informer()); err != nil {
		return err
	}
	return p.Run(ctx, op)
}

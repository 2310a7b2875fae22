// Command webapp is a typical operator: for each WebApp it maintains a Deployment, a Service, a ConfigMap and a record
// outside the cluster.
//
//	kubectl apply -f api/v1/webapp.example.com_webapps.yaml -f config/role.yaml -f config/rbac.yaml
//	go run . &
//	kubectl apply -f config/sample.yaml
package main

import (
	"context"
	"net/http"
	"time"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
)

func main() { evenkeel.Main(operator.Name, run) }

func run(ctx context.Context, p *evenkeel.Program) error {
	records := p.Flags.String("records", "http://127.0.0.1:8053", "URL of the records outside the cluster")
	domain := p.Flags.String("domain", "", "domain that a webhook appends to hosts without a dot (default: none)")
	storeV2 := p.Flags.Bool("store-v2", false, "store WebApps in v2; before, all replicas must have webhooks")
	p.Options.LeaseNamespace = operator.Name
	cluster, err := p.Connect(v1.AddToScheme, v2.AddToScheme)
	if err != nil {
		return err
	}
	outside := &http.Client{Timeout: 10 * time.Second}
	op, err := operator.New(cluster, operator.Config{Records: operator.HTTPRecords{URL: *records, Client: outside}})
	if err != nil {
		return err
	}
	if p.Webhooks.Listen != "" {
		config := hooks.Config{WebApps: op.Informer(), Domain: *domain}
		config.Owners = hooks.HTTPOwners{URL: *records, Client: outside}
		if err := serve(p, config, *storeV2); err != nil {
			return err
		}
	}
	return p.Run(ctx, op)
}

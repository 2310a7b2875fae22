package main

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// webhooks are the settings of the webhook server.
type webhooks struct {
	listen, url, domain string
	storeV2             bool
}

// runnables returns a server of the hooks, which maintains its certificates and its registration, and what the versions
// of WebApp need.
func (w webhooks) runnables(cluster *kube.Cluster, config hooks.Config) ([]manager.Runnable, error) {
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: operator.Name})
	if err != nil {
		return nil, err
	}
	all, err := hooks.New(config)
	if err != nil {
		return nil, err
	}
	at := admissionregistrationv1.WebhookClientConfig{URL: &w.url}
	server, err := webhook.New(webhook.Config{
		Cluster: cluster, Hooks: append(all, hooks.Conversion()), Listen: w.listen,
		Certificates: &webhook.Certificates{
			Client: c, Secret: kube.Key{Namespace: operator.Name, Name: operator.Name + "-tls"},
			Register: operator.Name, ClientConfig: at,
		},
	})
	if err != nil {
		return nil, err
	}
	definitions, err := crd.Parse(v2.CRD)
	if err != nil {
		return nil, err
	}
	if err := server.SetConversions(at, definitions...); err != nil {
		return nil, err
	}
	versions := definitions[0].Spec.Versions
	for i := range versions {
		versions[i].Storage = (versions[i].Name == v2.Version) == w.storeV2
	}
	install := func(ctx context.Context) error {
		// keeps v2 as the storage version without --store-v2
		_, err := crd.Ensure(ctx, c, definitions, crd.AcceptNewer())
		return err
	}
	migrate := func(ctx context.Context) error {
		_, err := crd.Migrate(ctx, c, definitions[0].Name)
		return err
	}
	return []manager.Runnable{
		{Runner: server, Group: manager.Servers},
		{
			Name: "definition", Runner: manager.RunFunc(install), Group: manager.Caches, Task: true,
			OnFailure: manager.Restart,
		},
		// Each replica serves webhooks, which read the cache, so it is full also before the replica leads.
		{Name: "webapps", Runner: config.WebApps, Group: manager.Caches},
		{Name: "storage migration", Runner: manager.RunFunc(migrate), OnFailure: manager.Restart},
	}, nil
}

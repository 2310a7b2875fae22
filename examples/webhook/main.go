// Command webhook rejects Ingresses with a host that another Ingress has. No schema can express this, because it is
// about two objects.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/webhook"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("webhook", flag.ExitOnError)
	listen := flags.String("webhook-listen", "127.0.0.1:9443", "the address of the webhook server; in a Pod :9443")
	url := flags.String("webhook-url", "https://127.0.0.1:9443", "the URL at which the API server reaches it; in "+
		"a Pod https://SERVICE.NAMESPACE.svc:PORT")
	namespace := flags.String("namespace", "default", "the namespace of the Secret with the certificates")
	options := manager.Options{Listen: "127.0.0.1:0"}
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	ingresses, err := informer.New(informer.Config[*networkingv1.Ingress]{
		Name:      "ingresses",
		Retriever: informer.Retrieve[*networkingv1.Ingress](cluster),
		Indexes:   []informer.Index[*networkingv1.Ingress]{{Name: byHost, Values: hostsOf}},
	})
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "webhook-example"})
	if err != nil {
		return err
	}
	// region server
	server, err := webhook.New(webhook.Config{
		Cluster: cluster,
		Listen:  *listen,
		Hooks:   []webhook.Hook{webhook.Validating(hostsOptions(), uniqueHosts(ingresses))},
		// The server creates its certificates, registers the hook, and renews both.
		Certificates: &webhook.Certificates{
			Client:   c,
			Secret:   kube.Key{Namespace: *namespace, Name: "webhook-example-tls"},
			Register: "webhook-example",
			URL:      *url,
		},
	})
	if err != nil {
		return err
	}
	m, err := options.New(cluster, manager.Config{Runnables: []manager.Runnable{
		{Runner: server, Group: manager.Servers},
		{Runner: ingresses, Group: manager.Caches},
	}})
	// endregion
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

const byHost = "host"

// hostsOf returns the hosts of an Ingress.
func hostsOf(ingress *networkingv1.Ingress) []string {
	var hosts []string
	for _, rule := range ingress.Spec.Rules {
		hosts = append(hosts, rule.Host)
	}
	return hosts
}

// region hook
// hostsOptions registers the hook for all Ingresses.
func hostsOptions() webhook.HookConfig {
	return webhook.HookConfig{
		Name:      "hosts.ingresses.example.com",
		Resources: []schema.GroupVersionResource{{Resource: "ingresses"}},
	}
}

// uniqueHosts rejects hosts that another Ingress has. Two requests at the same time can both be accepted, because the
// cache has neither object yet: a controller must expect that.
func uniqueHosts(ingresses *informer.Informer[*networkingv1.Ingress]) webhook.Func[*networkingv1.Ingress] {
	return func(ctx context.Context, request *webhook.Request[*networkingv1.Ingress]) error {
		if err := ingresses.WaitSynced(ctx); err != nil {
			return webhook.Failure(err) // the failure policy decides
		}
		var errs field.ErrorList
		for i, rule := range request.Object.Spec.Rules {
			for other, err := range ingresses.List(informer.Query{Index: byHost, Value: rule.Host}) {
				if err != nil {
					return webhook.Failure(err)
				}
				if key := kube.KeyOf(other); rule.Host != "" && key != kube.KeyOf(request.Object) {
					errs = append(errs, field.Invalid(field.NewPath("spec", "rules").Index(i).Child("host"), rule.Host,
						"used by Ingress "+key.String()))
				}
			}
		}
		return errs.ToAggregate()
	}
}

// endregion

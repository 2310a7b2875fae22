package evenkeel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// Serve adds webhooks to those that Run serves. Those of operators are added by Run. Call it after Connect.
func (p *Program) Serve(hooks ...webhook.Hook) {
	p.Webhooks.Hooks = append(p.Webhooks.Hooks, hooks...)
	p.server = p.webhooks
}

// serveIn adds the webhooks of the operator to p. They read its cache, so it is full on every replica.
func (o *Operator[T]) serveIn(p *Program) {
	if hooks := o.Hooks(); len(hooks) > 0 {
		p.Serve(hooks...)
		p.caches = append(p.caches, manager.Runnable{
			Name: "cache of " + o.Name(), Runner: o.Informer(), Group: manager.Caches,
		})
	}
}

// Installer prepares the installation of CustomResourceDefinitions: crd.Definitions, the result of crd.Parse. The
// package does not import them, so that only programs with definitions link their Go types.
type Installer interface {
	Prepare(c *client.Client, conversions []*unstructured.Unstructured) (
		install func(context.Context) error, migrations map[string]func(context.Context) error, err error)
}

// Install sets the CustomResourceDefinitions that Run installs on every replica before caches and controllers start,
// with crd.Ensure and crd.AcceptNewer; then the replica with the lease migrates stored objects to the storage version,
// with crd.Migrate. If Run serves conversions (with --webhook-listen and certificates of its own), it also sets them in
// the definitions. crd.Parse reads definitions from YAML. Call it once, with all definitions.
func (p *Program) Install(definitions Installer) {
	p.definitions = append(p.definitions, definitions)
	p.installer = p.installations
}

// client returns the client of the program's own objects.
func (p *Program) client() (*client.Client, error) {
	return client.New(client.Config{Cluster: p.cluster, FieldOwner: p.name})
}

// webhooks returns the server of the webhooks.
func (p *Program) webhooks() ([]manager.Runnable, error) {
	config := p.Webhooks
	if config.Listen == "" && config.Listener == nil {
		p.cluster.Logger().Warn("webhooks are not served", "hint", "set --webhook-listen")
		p.caches = nil
		return nil, nil
	}
	config.Cluster = cmp.Or(config.Cluster, p.cluster)
	if config.TLS == nil && p.Manager.TLS != nil {
		// The certificate of the manager's server, and its clients, are not those of the webhooks.
		config.TLS = func(settings *tls.Config) {
			p.Manager.TLS(settings)
			settings.Certificates, settings.GetCertificate, settings.GetConfigForClient = nil, nil, nil
			settings.ClientAuth, settings.ClientCAs = tls.NoClientCert, nil
		}
	}
	hasOwn := config.Certificates != nil || hasCertificate(config)
	if p.webhookURL != "" && hasOwn {
		return nil, errors.New("run the program: --webhook-url is set, and the program has a certificate in Webhooks " +
			"(Certificates, CertFile or TLS), which does not use it")
	}
	if !hasOwn {
		namespace := p.Options.LeaseNamespace
		if namespace == "" {
			var err error
			if namespace, err = kubeconfig.PodNamespace(kubeconfig.NamespaceFile); err != nil {
				return nil, err
			}
		}
		if p.deployment != nil && p.webhookURL == "" && namespace != p.deployment.objects.Namespace {
			return nil, fmt.Errorf("run the program: webhooks are called at a Service in the namespace of the lease, "+
				"%s: omit --lease-namespace, or set --webhook-url", namespace)
		}
		own, err := p.client()
		if err != nil {
			return nil, err
		}
		config.Certificates = &webhook.Certificates{
			Client: own, Secret: kube.Key{Namespace: namespace, Name: p.name + "-tls"},
			Register: p.name, URL: cmp.Or(p.webhookURL, "https://"+p.name+"."+namespace+".svc"),
		}
	}
	server, err := webhook.New(config)
	if err != nil {
		return nil, err
	}
	if config.Certificates != nil {
		if p.conversions, err = server.Conversions(config.Certificates.URL, nil); err != nil {
			return nil, err
		}
	}
	return []manager.Runnable{{Runner: server, Group: manager.Servers}}, nil
}

// hasCertificate reports whether the files or TLS of a config set the certificate.
func hasCertificate(config webhook.Config) bool {
	settings := &tls.Config{MinVersion: tls.VersionTLS13}
	if config.TLS != nil {
		config.TLS(settings)
	}
	return config.CertFile != "" || config.KeyFile != "" || len(settings.Certificates) > 0 ||
		settings.GetCertificate != nil
}

// installations returns what installs the definitions.
func (p *Program) installations() ([]manager.Runnable, error) {
	own, err := p.client()
	if err != nil {
		return nil, err
	}
	if len(p.definitions) > 1 {
		return nil, errors.New("run the program: Install was called twice: pass all definitions to one call")
	}
	if usercode.IsNil(p.definitions[0]) {
		return nil, errors.New("run the program: Install was called without definitions")
	}
	install, migrations, err := p.definitions[0].Prepare(own, p.conversions)
	if err != nil {
		return nil, err
	}
	runnables := []manager.Runnable{{
		Name: "definitions", Runner: manager.RunFunc(install), Group: manager.Caches, Task: true,
		OnFailure: manager.Restart,
	}}
	for _, name := range slices.Sorted(maps.Keys(migrations)) {
		runnables = append(runnables, manager.Runnable{
			Name:   "storage migration of " + name,
			Runner: manager.RunFunc(migrations[name]), OnFailure: manager.Restart,
		})
	}
	return runnables, nil
}

// Package hooks has the admission webhooks of the webapp operator: a default that depends on the program's settings,
// and rules about several objects and about the records outside the cluster. No schema can express them.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// Config configures the hooks.
type Config struct {
	// WebApps has the WebApps of all namespaces: two WebApps may not have one host. New adds an index to it. Required.
	WebApps *informer.Informer[*v1.WebApp]
	// Owners looks up the owners of records. Required.
	Owners Owners
	// Domain is appended to hosts without a dot: with "example.com" the host "shop" becomes "shop.example.com".
	// Default: such hosts stay unchanged.
	Domain string
}

// Owners is the part of the system outside the cluster that the hooks need.
type Owners interface {
	// Owner returns the owner of the record of a host: the uid of its WebApp. It is "" if there is no record.
	Owner(ctx context.Context, host string) (uid string, err error)
}

// New returns the hooks.
func New(config Config) ([]webhook.Hook, error) {
	if config.WebApps == nil || config.Owners == nil {
		return nil, errors.New("new webapp hooks: Config.WebApps and Config.Owners are required")
	}
	if err := config.WebApps.AddIndex(informer.Index[*v1.WebApp]{Name: byHost, Values: hostsOf}); err != nil {
		return nil, fmt.Errorf("new webapp hooks: %w", err)
	}
	return []webhook.Hook{
		webhook.Mutating(options("domains.webapps.example.com"), config.setDomain),
		webhook.Validating(options("hosts.webapps.example.com"), config.checkHost),
	}, nil
}

const byHost = "host"

// hostsOf returns the hosts whose records app has, or will have.
func hostsOf(app *v1.WebApp) []string { return []string{app.Spec.Host, app.Status.Host} }

// options registers a hook for creations and changes of WebApps.
func options(name string) webhook.HookConfig {
	return webhook.HookConfig{Name: name, Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create,
			admissionregistrationv1.Update,
		},
		Rule: admissionregistrationv1.Rule{Resources: []string{v1.Resource}},
	}}}
}

// setDomain completes a host without a domain.
func (c Config) setDomain(_ context.Context, request *webhook.Request[*v1.WebApp]) error {
	if host := &request.Object.Spec.Host; *host != "" && c.Domain != "" && !strings.Contains(*host, ".") {
		*host += "." + c.Domain
	}
	return nil
}

// checkHost rejects a new host that another WebApp has, or whose record has another owner. An object that keeps its
// host is accepted, so that the operator can change it, and a user can solve a conflict. Two requests at the same time
// can both be accepted, because the cache has neither object yet: then the record decides, and the second WebApp is
// stalled.
func (c Config) checkHost(ctx context.Context, request *webhook.Request[*v1.WebApp]) error {
	app := request.Object
	host := app.Spec.Host
	if host == "" || request.Old != nil && request.Old.Spec.Host == host {
		return nil
	}
	if err := c.WebApps.WaitSynced(ctx); err != nil {
		return webhook.Failure(err) // the failure policy decides
	}
	path := field.NewPath("spec", "host")
	for other, err := range c.WebApps.List(informer.Query{Index: byHost, Value: host}) {
		if err != nil {
			return webhook.Failure(err)
		}
		if key := kube.KeyOf(other); key != kube.KeyOf(app) {
			return field.Invalid(path, host, "used by WebApp "+key.String())
		}
	}
	owner, err := c.Owners.Owner(ctx, host)
	if err != nil {
		return webhook.Failure(fmt.Errorf("look up the owner of the record of %s: %w", host, err))
	}
	if owner != "" && owner != string(app.UID) {
		return field.Invalid(path, host, "its record belongs to another owner: "+owner)
	}
	return nil
}

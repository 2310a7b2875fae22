// Package hooks has the admission webhooks of the webapp operator: a default that depends on the program's settings,
// and rules about several objects and about the records outside the cluster. No schema can express them.
package hooks

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// Rules are the rules for WebApps: the functions Default and Validate of the operator.
type Rules struct {
	// Owners looks up the owners of records. Required.
	Owners Owners
	// Domain is appended to hosts without a dot: with "example.com" the host "shop" becomes "shop.example.com".
	// Default: such hosts stay unchanged.
	Domain string

	webApps *informer.Informer[*v1.WebApp]
}

// Owners is the part of the system outside the cluster that the rules need.
type Owners interface {
	// Owner returns the owner of the record of a host: the uid of its WebApp. It is "" if there is no record.
	Owner(ctx context.Context, host string) (uid string, err error)
}

// Read sets the informer of the WebApps of all namespaces, two of which may not have one host. It adds an index, and
// must be called before the first request.
func (r *Rules) Read(webApps *informer.Informer[*v1.WebApp]) error {
	r.webApps = webApps
	return webApps.AddIndex(informer.Index[*v1.WebApp]{Name: byHost, Values: hostsOf})
}

const byHost = "host"

// hostsOf returns the hosts whose records app has, or will have.
func hostsOf(app *v1.WebApp) []string { return []string{app.Spec.Host, app.Status.Host} }

// SetDomain completes a host without a domain.
func (r *Rules) SetDomain(_ context.Context, request *webhook.Request[*v1.WebApp]) error {
	if host := &request.Object.Spec.Host; *host != "" && r.Domain != "" && !strings.Contains(*host, ".") {
		*host += "." + r.Domain
	}
	return nil
}

// CheckHost rejects a new host that another WebApp has, or whose record has another owner. An object that keeps its
// host is accepted, so that the operator can change it, and a user can solve a conflict. Two requests at the same time
// can both be accepted, because the cache has neither object yet: then the record decides, and the second WebApp is
// stalled.
func (r *Rules) CheckHost(ctx context.Context, request *webhook.Request[*v1.WebApp]) error {
	app := request.Object
	host := app.Spec.Host
	if host == "" || request.Old != nil && request.Old.Spec.Host == host {
		return nil
	}
	if err := r.webApps.WaitSynced(ctx); err != nil {
		return webhook.Failure(err) // the failure policy decides
	}
	path := field.NewPath("spec", "host")
	for other, err := range r.webApps.List(informer.Query{Index: byHost, Value: host}) {
		if err != nil {
			return webhook.Failure(err)
		}
		if key := kube.KeyOf(other); key != kube.KeyOf(app) {
			return field.Invalid(path, host, fmt.Sprintf("used by WebApp %s", key))
		}
	}
	owner, err := r.Owners.Owner(ctx, host)
	if err != nil {
		return webhook.Failure(fmt.Errorf("look up the owner of the record of %s: %w", host, err))
	}
	if owner != "" && owner != string(app.UID) {
		return field.Invalid(path, host, "its record belongs to another owner: "+owner)
	}
	return nil
}

package simulated

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// owners are the owners of records by host.
type owners map[string]string

func (o owners) Owner(_ context.Context, host string) (uid string, err error) {
	if host == "down.example.com" {
		return "", errors.New("connection refused")
	}
	return o[host], nil
}

// newOperator returns the operator with its webhooks.
func newOperator(t *testing.T, cluster *kube.Cluster, outside owners) *evenkeel.Operator[*v1.WebApp] {
	t.Helper()
	rules := &hooks.Rules{Owners: outside, Domain: "example.com"}
	config := operator.Config(cluster, records{})
	config.Default, config.Validate = rules.SetDomain, rules.CheckHost
	webapps, err := evenkeel.New(config)
	if err == nil {
		err = rules.Read(webapps.Informer())
	}
	if err != nil {
		t.Fatal(err)
	}
	return webapps
}

// TestHooks checks the webhooks of the operator: the domain of a host, hosts of other WebApps, and records of other owners.
func TestHooks(t *testing.T) {
	t.Parallel()
	config := simulation.Config{Manifests: []string{"../api/v1/webapp.example.com_webapps.yaml"}, Types: []func(*runtime.Scheme) error{v1.AddToScheme}}
	simulation.Test(t, config, func(t *testing.T, c *simulation.Cluster) {
		cluster := c.Connect(operator.Name)
		outside := owners{"taken.example.com": "another"}
		webapps := newOperator(t, cluster, outside)
		server, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: webapps.Hooks()})
		if err != nil {
			t.Fatal(err)
		}
		c.Run(webapps)
		c.HandleWebhooks(server)
		configurations, err := server.Configurations("webapp-operator", "https://webapp-operator.example.com", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, configuration := range configurations {
			if _, err := client.Apply(t.Context(), c.Client(), configuration); err != nil {
				t.Fatal(err)
			}
		}
		create := func(name, host string) (*v1.WebApp, error) {
			defer c.Settle()
			return client.Create(t.Context(), c.Client(), &v1.WebApp{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.WebAppSpec{Image: "shop:1", Host: host},
			})
		}
		rejected := func(err error, want string) {
			t.Helper()
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.host: Invalid value: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one about spec.host with %q", err, want)
			}
		}

		shop, err := create("shop", "shop")
		if err != nil || shop.Spec.Host != "shop.example.com" {
			t.Fatalf("a host without a domain: %+v, %v", shop, err)
		}
		outside["shop.example.com"] = string(shop.UID)
		if other, err := create("without", ""); err != nil || other.Spec.Host != "" {
			t.Errorf("a WebApp without a host: %+v, %v", other, err)
		}
		_, err = create("second", "shop.example.com")
		rejected(err, "used by WebApp default/shop")
		_, err = create("second", "taken.example.com")
		rejected(err, "its record belongs to another owner: another")
		if _, err = create("second", "down.example.com"); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v, want the failure of the lookup", err)
		}
		if _, err = create("second", "second"); err != nil {
			t.Error(err)
		}

		move := func(name, host string) error {
			defer c.Settle()
			app := simulation.Get[*v1.WebApp](c, "default/"+name)
			before := app.DeepCopy()
			app.Spec.Host = host
			_, err := client.Patch(t.Context(), c.Client(), before, client.MergeFrom(before, app))
			return err
		}
		rejected(move("second", "shop"), "used by WebApp default/shop")
		if err := move("shop", "shop2"); err != nil {
			t.Error(err)
		}
		rejected(move("second", "shop"), "its record belongs to another owner: "+string(shop.UID))
		delete(outside, "shop.example.com") // as the operator does
		if err := move("second", "shop"); err != nil {
			t.Error(err)
		}

		// A conflict that is older than the webhook does not prevent other changes.
		outside["shop.example.com"] = "another"
		if _, err := client.Patch(t.Context(), c.Client(), &v1.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"image":"shop:2"}}`))); err != nil {
			t.Error(err)
		}
		c.Settle()
		if writes := c.Record(func() { c.Advance(time.Hour) }).Writes(); len(writes) > 0 {
			t.Errorf("writes of the idle operator:\n%s", writes)
		}
	})
}

// Package simulated has tests of the webapp operator that need no cluster.
package simulated

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// region test

type records map[string]string

func (r records) Ensure(_ context.Context, record operator.Record) error {
	r[record.Host] = record.Target
	return nil
}

func (r records) Delete(_ context.Context, record operator.Record) error {
	delete(r, record.Host)
	return nil
}

func TestWebApp(t *testing.T) {
	t.Parallel()
	cluster := simulation.Config{Manifests: []string{"../api/v1/webapp.example.com_webapps.yaml"}, Types: []func(*runtime.Scheme) error{v1.AddToScheme}}
	simulation.Test(t, cluster, func(t *testing.T, c *simulation.Cluster) {
		outside := records{}
		webapps, err := evenkeel.New(operator.Config(c.Connect(operator.Name), outside))
		if err != nil {
			t.Fatal(err)
		}
		c.Run(webapps)
		c.Apply(string(config.Sample)) // the WebApp shop
		c.Settle()
		c.Expect(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop}, spec: {replicas: 2}}`)
		if outside["shop.example.com"] != "shop.default.svc" {
			t.Errorf("the records are %v", outside)
		}
		c.Expect(`{apiVersion: webapp.example.com/v1, kind: WebApp, metadata: {name: shop}, status: {conditions: [{type: Ready, status: "True"}]}}`)
		if writes := c.Record(func() { c.Advance(time.Hour) }).Writes(); len(writes) > 0 {
			t.Errorf("writes of the idle operator:\n%s", writes)
		}
		simulation.Delete[*v1.WebApp](c, "default/shop")
		c.Settle()
		simulation.ExpectGone[*v1.WebApp](c, "default/shop")
		simulation.ExpectGone[*appsv1.Deployment](c, "default/shop")
		if len(outside) > 0 {
			t.Errorf("records are left: %v", outside)
		}
	})
}

// endregion

// The response to the first write of the Deployment is lost, and a user edits the WebApp before the second one.
func TestWebAppWithLostResponse(t *testing.T) {
	t.Parallel()
	cluster := simulation.Config{Manifests: []string{"../api/v1/webapp.example.com_webapps.yaml"}, YAML: string(config.Sample), Types: []func(*runtime.Scheme) error{v1.AddToScheme}}
	simulation.Test(t, cluster, func(t *testing.T, c *simulation.Cluster) {
		writes := 0
		c.Intercept(func(r simulation.Request, send func()) error {
			if r.UserAgent != operator.Name || !r.IsWrite() || r.Resource.Resource != "deployments" {
				return nil
			}
			switch writes++; writes {
			case 1:
				send() // the server executes the request
				return errors.New("connection reset by peer")
			case 2:
				simulation.Edit(c, "default/shop", "", func(app *v1.WebApp) { app.Spec.Image = "shop:2" })
			}
			return nil
		})
		webapps, err := evenkeel.New(operator.Config(c.Connect(operator.Name), records{}))
		if err != nil {
			t.Fatal(err)
		}
		c.Run(webapps)
		c.Settle()
		c.Expect(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec: {template: {spec: {containers: [{name: app, image: "shop:2"}]}}}`)
		if writes < 2 {
			t.Errorf("%d writes of the Deployment", writes)
		}
	})
}

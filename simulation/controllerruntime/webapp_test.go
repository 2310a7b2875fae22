package controllerruntime

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
	webapp "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/operator"
	"github.com/evenkeel-go/evenkeel/simulation"
)

type records map[string]string

func (r records) Ensure(_ context.Context, record webapp.Record) error {
	r[record.Host] = record.Target
	return nil
}

func (r records) Delete(_ context.Context, record webapp.Record) error {
	delete(r, record.Host)
	return nil
}

func TestWebApp(t *testing.T) {
	t.Parallel()
	cluster := simulation.Config{
		Manifests: []string{"../../dev/bench/controllerruntime/webapp/api/v1/webapp.example.com_webapps.yaml"},
		Types:     []func(*runtime.Scheme) error{v1.AddToScheme},
	}
	simulation.Test(t, cluster, func(t *testing.T, c *simulation.Cluster) {
		outside := records{}
		options := ctrl.Options{
			HealthProbeBindAddress: "0", Metrics: metricsserver.Options{BindAddress: "0"},
			Controller: config.Controller{SkipNameValidation: new(true)}, // several tests, and -count 2
		}
		manager, err := webapp.NewManager(c.RESTConfig("webapp-operator"), options, outside)
		if err != nil {
			t.Fatal(err)
		}
		c.Go("manager", manager.Start)
		c.Apply(`{apiVersion: webapp.example.com/v1, kind: WebApp, metadata: {name: shop}, spec: {image: "shop:1", replicas: 2, host: shop.example.com}}`)
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

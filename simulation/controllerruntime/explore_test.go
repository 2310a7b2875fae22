package controllerruntime

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
	webapp "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/operator"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// calledRecords are records whose calls Explore can disturb.
type calledRecords struct{ records }

func (c calledRecords) Ensure(ctx context.Context, record webapp.Record) error {
	return simulation.Call(ctx, "ensure record "+record.Host, func() error { return c.records.Ensure(ctx, record) })
}

func (c calledRecords) Delete(ctx context.Context, record webapp.Record) error {
	return simulation.Call(ctx, "delete record "+record.Host, func() error { return c.records.Delete(ctx, record) })
}

func TestWebAppSurvivesFaults(t *testing.T) {
	simulation.Explore(t, func() simulation.Scenario {
		outside := calledRecords{records{}}
		return simulation.Scenario{
			Cluster: simulation.Config{
				Manifests: []string{"../../dev/bench/controllerruntime/webapp/api/v1/webapp.example.com_webapps.yaml"},
				Types:     []func(*runtime.Scheme) error{v1.AddToScheme},
			},
			Programs: map[string]func(context.Context, *rest.Config) error{
				"webapp-operator": func(ctx context.Context, rc *rest.Config) error {
					manager, err := webapp.NewManager(rc, ctrl.Options{
						HealthProbeBindAddress: "0", Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
						Controller: config.Controller{SkipNameValidation: new(true)},
					}, outside)
					if err != nil {
						return err
					}
					return manager.Start(ctx)
				},
			},
			Steps: []func(c *simulation.Cluster){
				func(c *simulation.Cluster) {
					c.Apply(`{apiVersion: webapp.example.com/v1, kind: WebApp, metadata: {name: shop}, spec: {image: "shop:1", replicas: 2, host: shop.example.com}}`)
				},
				func(c *simulation.Cluster) {
					simulation.Edit(c, "default/shop", "", func(app *v1.WebApp) { app.Spec.Image = "shop:2" })
				},
				func(c *simulation.Cluster) { simulation.Delete[*v1.WebApp](c, "default/shop") },
			},
			Runs: 40,
		}
	})
}

package simulated

import (
	"context"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// calledRecords are records whose calls Explore can disturb.
type calledRecords struct{ records }

func (c calledRecords) Ensure(ctx context.Context, record operator.Record) error {
	return simulation.Call(ctx, "ensure record "+record.Host, func() error { return c.records.Ensure(ctx, record) })
}

func (c calledRecords) Delete(ctx context.Context, record operator.Record) error {
	return simulation.Call(ctx, "delete record "+record.Host, func() error { return c.records.Delete(ctx, record) })
}

func TestWebAppSurvivesFaults(t *testing.T) {
	t.Parallel()
	// region explore
	simulation.Explore(t, func() simulation.Scenario {
		outside := calledRecords{records{}}
		return simulation.Scenario{
			Cluster: simulation.Config{Manifests: []string{"../api/v1/webapp.example.com_webapps.yaml"}, Types: []func(*runtime.Scheme) error{v1.AddToScheme}},
			Programs: map[string]func(context.Context, *rest.Config) error{
				operator.Name: func(ctx context.Context, rc *rest.Config) error {
					cluster, err := kube.Connect(rc, v1.AddToScheme)
					if err != nil {
						return err
					}
					cluster.SetLogger(slog.New(slog.DiscardHandler)) // hundreds of runs log a lot
					webapps, err := evenkeel.New(operator.Config(cluster, outside))
					if err != nil {
						return err
					}
					return webapps.Run(ctx)
				},
			},
			Steps: []func(c *simulation.Cluster){
				func(c *simulation.Cluster) { c.Apply(string(config.Sample)) }, // the WebApp shop
				func(c *simulation.Cluster) {
					simulation.Edit(c, "default/shop", "", func(app *v1.WebApp) { app.Spec.Image = "shop:2" })
				},
				func(c *simulation.Cluster) { simulation.Delete[*v1.WebApp](c, "default/shop") },
			},
			Runs: clustertest.Count(20, 0),
		}
	})
	// endregion
}

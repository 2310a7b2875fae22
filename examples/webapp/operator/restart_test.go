package operator

import (
	"testing"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// The API server is killed and restarted while WebApps change.
func TestWebappSurvivesAPIServerRestart(t *testing.T) {
	clustertest.OnlyLong(t)
	cluster, err := localcluster.Start(t.Context(), localcluster.Config{Controllers: true, Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := install(t.Context(), cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	w := newWorldIn(t, cluster.RESTConfig())
	w.operateUntilReady("shop")
	w.change("shop", func(app *v1.WebApp) { app.Spec.Image, app.Spec.Host = "shop:2", "store.example.com" })
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.untilReady("shop")
	w.check("shop", "shop:2", map[string]string{"GREETING": "hello"})
	w.change("shop", func(app *v1.WebApp) { app.Spec.Image = "shop:3" })
	w.untilReady("shop")
	w.check("shop", "shop:3", map[string]string{"GREETING": "hello"})
	w.delete("shop")
	w.untilGone("shop")
}

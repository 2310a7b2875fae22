package prometheus_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// A program sets its metrics and its Events once, at the connection: every part has them, with no more than the Cluster.
func TestMetricsAndEventsOfClusterReachEveryPart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(append(builtin.Events(), apiserver.ConfigMaps(), apiserver.Secrets(), apiserver.Leases())...)
		server.Edit("configmaps", kube.Key{Namespace: "shop", Name: "web"}, "jane", func(map[string]any) bool { return true })
		cluster, _ := apitest.Connect(server.Config("operator"))
		if _, err := metrics.New(metrics.Config{Cluster: cluster, Registerer: registry, CompatibleNames: true}); err != nil {
			t.Fatal(err)
		}
		events, err := event.New(event.Config{Cluster: cluster, Controller: "operator"})
		if err != nil {
			t.Fatal(err)
		}
		ignore := func(context.Context, *corev1.ConfigMap) error { return nil }
		secrets, err := informer.New(informer.Config[*corev1.Secret]{Name: "secrets", Retriever: informer.Retrieve[*corev1.Secret](cluster)})
		if err != nil {
			t.Fatal(err)
		}
		runnables := []manager.Runnable{{Name: "events", Runner: events, Group: manager.Servers}, {Runner: secrets}}
		for _, config := range []controller.Config[*corev1.ConfigMap]{
			{Name: "stuck", Cluster: cluster, Handler: func(ctx context.Context, _ *corev1.ConfigMap) error { <-ctx.Done(); return nil }},
			{Name: "retrieved", Retriever: informer.Retrieve[*corev1.ConfigMap](cluster), Handler: ignore},
		} {
			ctrl, err := controller.New(config)
			if err != nil {
				t.Fatal(err)
			}
			runnables = append(runnables, manager.Runnable{Runner: ctrl})
		}
		tenants, err := controller.New(controller.Config[controller.NoObject]{
			Name: "tenants", Cluster: cluster, Reconciler: func(context.Context, kube.Key) error { return nil },
			Sources: []controller.Source{controller.SourceFunc(func(ctx context.Context, _ controller.Enqueue) error { <-ctx.Done(); return nil })},
		})
		if err != nil {
			t.Fatal(err)
		}
		hooks, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: []webhook.Hook{
			webhook.Validating(webhook.HookConfig{}, func(context.Context, *webhook.Request[*corev1.ConfigMap]) error { return nil }),
		}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Config{
			LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator", Identity: "me"},
			Runnables:      append(runnables, manager.Runnable{Runner: tenants}), IgnoreSignals: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		time.Sleep(10 * time.Minute)
		hooks.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost,
			"/validating.configmaps.core", strings.NewReader("{}")))
		var series []string
		for _, family := range families(t, registry) {
			for _, m := range family.GetMetric() {
				series = append(series, family.GetName()+labelsOf(m))
			}
		}
		for part, prefix := range map[string]string{
			"controller":                 "evenkeel_controller_workers{controller=stuck}",
			"controller of a Retriever":  "evenkeel_controller_workers{controller=retrieved}",
			"controller without objects": "evenkeel_controller_workers{controller=tenants}",
			"informer of a controller":   "evenkeel_informer_synced{informer=stuck",
			"informer":                   "evenkeel_informer_synced{informer=secrets",
			"leader election":            "leader_election_master_status{name=operator}",
			"requests":                   "rest_client_requests_total{",
			"webhook server":             "evenkeel_webhook_review_seconds{",
		} {
			if !slices.ContainsFunc(series, func(s string) bool { return strings.HasPrefix(s, prefix) }) {
				t.Errorf("%s: there is no series %s", part, prefix)
			}
		}
		if len(server.Keys("events")) == 0 {
			t.Error("no Event tells the problem of controller stuck")
		}
		if t.Failed() {
			t.Logf("the series are %s", strings.Join(series, "\n"))
		}
	})
}

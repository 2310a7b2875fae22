package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

// While one of two namespaces is forbidden, Health, Problems and metrics report it, and the objects of the other one are
// handled.
func TestForbiddenNamespaceIsReported(t *testing.T) {
	t.Parallel()
	for _, optional := range []bool{false, true} {
		t.Run(fmt.Sprintf("optional %t", optional), func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewPedanticRegistry()
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps())
				for _, namespace := range []string{"shop", "other"} {
					server.Edit("configmaps", kube.Key{Namespace: namespace, Name: "web"}, "jane", func(map[string]any) bool { return true })
				}
				var refuses atomic.Bool
				refuses.Store(true)
				server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
					if !refuses.Load() || !strings.Contains(req.URL.Path, "/namespaces/other/") {
						return do(), nil
					}
					body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`
					return &http.Response{
						StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(body)),
					}, nil
				})
				cluster, _ := apitest.Connect(server.Config("operator"))
				cluster.SetLogger(slog.New(slog.DiscardHandler))
				if _, err := metrics.New(metrics.Config{Cluster: cluster, Registerer: registry}); err != nil {
					t.Fatal(err)
				}
				ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
					Name: "shops", Optional: optional, Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
					Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"shop", "other"}}),
				})
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, ctrl.Run)
				expect := func(forbidden bool) {
					t.Helper()
					time.Sleep(time.Minute)
					health, problems := ctrl.Informer().Health(), ctrl.Problems()
					if apierrors.IsForbidden(health.Err) != forbidden || health.Synced == forbidden || health.Degraded != (forbidden && optional) {
						t.Errorf("forbidden %t: Health is %+v", forbidden, health)
					}
					if forbidden != (len(problems) == 1) || forbidden && !strings.Contains(problems[0].Message, "namespace other") {
						t.Errorf("forbidden %t: problems %v", forbidden, problems)
					}
					value := map[bool]float64{true: 1}
					labels := "{informer=" + health.Informer
					expectValues(t, registry, map[string]float64{
						"evenkeel_informer_failing" + labels + ",reason=Forbidden}": value[forbidden],
						"evenkeel_informer_failing" + labels + ",reason=Other}":     0,
						"evenkeel_informer_degraded" + labels + "}":                 value[forbidden && optional],
						"evenkeel_informer_synced" + labels + "}":                   value[!forbidden],
						"evenkeel_informer_objects" + labels + "}":                  2 - value[forbidden],
					})
				}
				expect(true)
				refuses.Store(false)
				expect(false)
			})
		})
	}
}

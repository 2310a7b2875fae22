package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// /readyz names the permission that an informer lacks, the handler that does not return, and the API server that does not
// respond. A program without objects is ready.
func TestReadinessChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apiserver.Leases())
		cluster, err := kube.Connect(server.Config("operator"))
		if err != nil {
			t.Fatal(err)
		}
		proceed := make(chan struct{})
		config := controller.Config[*corev1.ConfigMap]{
			Name: "configmaps", Cluster: cluster, Logger: slog.New(slog.DiscardHandler), ResyncInterval: -1,
			Handler: func(context.Context, *corev1.ConfigMap) error { <-proceed; return nil },
		}
		config.Runs.StuckAfter, config.Runs.UnreadyWhenStuck = time.Minute, true
		ctrl, err := controller.New(config)
		if err != nil {
			t.Fatal(err)
		}
		listener := newPipes()
		m, err := manager.New(manager.Config{
			LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator"},
			Runnables:      []manager.Runnable{{Runner: ctrl}},
			Listener:       listener, IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"list", "watch"} {
			server.Fail(verb, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil))
		}
		testrun.Start(t, m.Run)
		time.Sleep(30 * time.Second)
		listener.expect(t, http.StatusServiceUnavailable, "/readyz", "[-]configmaps failed: ", "configmaps is forbidden", "[+]leader-election ok (leading)", "[+]http ok")
		listener.expect(t, http.StatusOK, "/livez")
		for _, verb := range []string{"list", "watch"} {
			server.Fail(verb, nil)
		}
		time.Sleep(2 * time.Minute)
		if text := listener.expect(t, http.StatusOK, "/readyz?verbose"); strings.Contains(text, "[-]") {
			t.Error("not ready without objects")
		}
		server.Apply("configmaps", kube.Key{Namespace: "shop", Name: "web"}, "kubectl", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"web"}}`)
		time.Sleep(2 * time.Minute)
		listener.expect(t, http.StatusServiceUnavailable, "/readyz", "[-]configmaps failed: ", "shop/web")
		close(proceed)
		time.Sleep(time.Second)
		listener.expect(t, http.StatusOK, "/readyz")
		for _, verb := range []string{"get", "update"} {
			server.Fail(verb, errors.New("no connection"))
		}
		time.Sleep(time.Minute)
		listener.expect(t, http.StatusServiceUnavailable, "/readyz", "[-]leader-election failed: ", "no connection")
	})
}

package manager_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// A controller and its informer run in a manager: the informer stays synced while leadership is lost, and the controller
// handles all objects again in the next term.
func TestControllerInManager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apiserver.Leases())
		server.Apply("configmaps", kube.Key{Namespace: "shop", Name: "web"}, "kubectl", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"web"},"data":{"a":"b"}}`)
		cluster, err := kube.Connect(server.Config("operator"))
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		configMaps, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Name: "cache", Retriever: informer.Retrieve[*corev1.ConfigMap](cluster), Logger: logger,
		})
		if err != nil {
			t.Fatal(err)
		}
		handled := make(chan string, 10)
		ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "configmaps", Informer: configMaps, Logger: logger, ResyncInterval: time.Hour,
			Handler: func(_ context.Context, obj *corev1.ConfigMap) error { handled <- obj.Name; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Config{
			LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator"},
			Runnables:      []manager.Runnable{{Runner: ctrl}, {Runner: configMaps, Group: manager.Caches}},
			IgnoreSignals:  true, Logger: logger,
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		for term := range 2 {
			if name := <-handled; name != "web" {
				t.Errorf("term %d: handled %s", term, name)
			}
			synctest.Wait()
			if err := m.Ready(); err != nil || ctrl.Ready() != nil {
				t.Errorf("term %d: not ready: %v", term, err)
			}
			server.Edit("leases", kube.Key{Namespace: "shop", Name: "operator"}, "kubectl", func(obj map[string]any) bool {
				obj["spec"] = map[string]any{"holderIdentity": "other", "leaseDurationSeconds": int64(15)}
				return true
			})
			time.Sleep(5 * time.Second)
			if err := m.Ready(); err != nil || configMaps.Ready() != nil || ctrl.Ready() == nil {
				t.Errorf("standby after term %d: not ready: %v", term, err)
			}
		}
	})
}

// TestContract05_ManagerNamesKeysOfHandlersThatIgnoreTheirContext checks that Run returns in time with an error that
// names the controller and its keys, and that the lease is not released while the handler may write.
func TestContract05_ManagerNamesKeysOfHandlersThatIgnoreTheirContext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		timeout time.Duration // of the shutdown
		steal   bool          // the lease, in place of a stop
		want    time.Duration // until Run returns
	}{
		"controller returns first": {29 * time.Second, false, 28 * time.Second},
		"manager returns first":    {10 * time.Second, false, 10 * time.Second},
		"leadership is lost":       {29 * time.Second, true, 28 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps(), apiserver.Leases())
				server.Apply("configmaps", kube.Key{Namespace: "shop", Name: "web"}, "kubectl", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"web"}}`)
				cluster, err := kube.Connect(server.Config("operator"))
				if err != nil {
					t.Fatal(err)
				}
				release := make(chan struct{})
				logger := slog.New(slog.DiscardHandler)
				ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
					Name: "configmaps", Cluster: cluster, Logger: logger,
					Handler: func(context.Context, *corev1.ConfigMap) error { <-release; return nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				m, err := manager.New(manager.Config{
					LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator", Identity: "me"},
					Runnables:      []manager.Runnable{{Runner: ctrl}},
					IgnoreSignals:  true, Logger: logger, ShutdownTimeout: test.timeout,
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				result := make(chan error, 1)
				go func() { result <- m.Run(ctx) }() // waited for below
				time.Sleep(time.Minute)
				lease := kube.Key{Namespace: "shop", Name: "operator"}
				holder := "me"
				if test.steal {
					holder = "other"
					server.Edit("leases", lease, "kubectl", func(obj map[string]any) bool {
						obj["spec"] = map[string]any{"holderIdentity": holder, "leaseDurationSeconds": int64(15)}
						return true
					})
				} else {
					cancel()
				}
				began := time.Now()
				err = <-result
				if text := fmt.Sprint(err); !strings.Contains(text, `"configmaps"`) || !strings.Contains(text, "handlers of shop/web") {
					t.Errorf("Run returned %v, want the names of the controller and its key", err)
				}
				const renewal = 3 * time.Second // until the loss is seen
				if took := time.Since(began); took < test.want || took > test.want+renewal {
					t.Errorf("Run returned after %s, want %s", took, test.want)
				}
				spec, _ := server.Object("leases", lease).Object["spec"].(map[string]any)
				if spec["holderIdentity"] != holder {
					t.Errorf("the lease is %v, want the holder %s", spec, holder)
				}
				cancel()
				close(release)
			})
		})
	}
}

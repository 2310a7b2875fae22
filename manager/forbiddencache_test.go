package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/manager"
)

// Readiness reports a forbidden namespace of several, but no later group waits for it.
func TestForbiddenNamespaceDoesNotHoldBackStart(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	for name, newRunnable := range map[string]func(informer.Retriever[*corev1.ConfigMap]) (manager.Runnable, error){
		"cache": func(r informer.Retriever[*corev1.ConfigMap]) (manager.Runnable, error) {
			inf, err := informer.New(informer.Config[*corev1.ConfigMap]{Name: "c", Retriever: r, Logger: logger})
			return manager.Runnable{Runner: inf, Group: manager.Caches}, err
		},
		"controller": func(r informer.Retriever[*corev1.ConfigMap]) (manager.Runnable, error) {
			ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
				Name: "c", Retriever: r, Logger: logger, Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
			})
			return manager.Runnable{Runner: ctrl, Group: manager.Always}, err
		},
		"cache within a Runner that is not ready": func(r informer.Retriever[*corev1.ConfigMap]) (manager.Runnable, error) {
			inf, err := informer.New(informer.Config[*corev1.ConfigMap]{Name: "c", Retriever: r, Logger: logger})
			return manager.Runnable{Name: "c", Runner: neverReady{inf.Run}, Group: manager.Always}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				good := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
				bad := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
				good.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
				for _, verb := range []string{"list", "watch"} {
					bad.Fail(verb, apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("jane may not")))
				}
				runnable, err := newRunnable(informer.Combine[*corev1.ConfigMap](good, bad))
				if err != nil {
					t.Fatal(err)
				}
				started := make(chan struct{})
				m, err := manager.New(manager.Config{
					Runnables: []manager.Runnable{
						runnable,
						{Name: "later", Group: manager.LeaderOnly, Runner: manager.RunFunc(func(ctx context.Context) error { close(started); <-ctx.Done(); return nil })},
					},
					IgnoreSignals: true, Logger: logger,
				})
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, m.Run)
				time.Sleep(time.Hour)
				select {
				case <-started:
					if runnable.Name != "" {
						t.Error("the group has not waited for Ready")
					}
				default:
					if runnable.Name == "" {
						t.Errorf("after an hour the later group has not started, because of one forbidden namespace: %v", m.Ready())
					}
				}
				if err := m.Ready(); err == nil {
					t.Error("the manager is ready with a forbidden namespace")
				}
			})
		})
	}
}

type neverReady struct{ manager.RunFunc }

func (neverReady) Ready() error { return errors.New("not yet") }

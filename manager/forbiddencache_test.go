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

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/manager"
)

func TestForbiddenNamespaceOfCacheDoesNotHoldBackStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
		bad := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
		good.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		for _, verb := range []string{"list", "watch"} {
			bad.Fail(verb, apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("jane may not")))
		}
		logger := slog.New(slog.DiscardHandler)
		inf, err := informer.New(informer.Config[*corev1.ConfigMap]{Name: "c", Retriever: informer.Combine[*corev1.ConfigMap](good, bad), Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		started := make(chan struct{})
		m, err := manager.New(manager.Config{
			Runnables: []manager.Runnable{
				{Runner: inf, Group: manager.Caches},
				{Name: "controller", Runner: manager.RunFunc(func(ctx context.Context) error { close(started); <-ctx.Done(); return nil })},
			},
			IgnoreSignals: true, Logger: logger,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- m.Run(ctx) }()
		time.Sleep(time.Hour)
		if err := inf.WaitSynced(ctx); err != nil {
			t.Error(err)
		}
		select {
		case <-started:
		default:
			t.Errorf("after an hour the controllers have not started, because of one forbidden namespace: %v", m.Ready())
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

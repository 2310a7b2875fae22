package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// LeaderOnly waits until the controllers of Always are ready: here, until the first poll has succeeded.
func TestLeaderOnlyWaitsForSourcesOfControllers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		began := time.Now()
		ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "c", Retriever: kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true), Logger: logger,
			Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
			Sources: []controller.Source{poll.New(poll.Config{
				Name: "billing", Interval: time.Minute,
				Poller: poll.List(func(context.Context) ([]poll.Item, error) {
					if time.Since(began) < 10*time.Minute {
						return nil, errors.New("billing is down")
					}
					return nil, nil
				}),
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Config{
			Runnables: []manager.Runnable{
				{Runner: ctrl, Group: manager.Always},
				{Name: "later", Group: manager.LeaderOnly, Runner: manager.RunFunc(func(ctx context.Context) error {
					if err := ctrl.Ready(); err != nil {
						t.Errorf("LeaderOnly starts after %s: %v", time.Since(began), err)
					}
					<-ctx.Done()
					return nil
				})},
			},
			IgnoreSignals: true, Logger: logger,
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		time.Sleep(time.Hour)
	})
}

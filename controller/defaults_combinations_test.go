package controller_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
)

// A Base of a controller and a Max of the defaults are both valid: without SetDefaults a Base of 1 min raises Max.
func TestOwnRetryDelaysBesideDefaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ all, typed, own retry.Policy }{
		"own Base":      {all: retry.Policy{Max: 10 * time.Second}, own: retry.Policy{Base: time.Minute}},
		"own Max":       {all: retry.Policy{Base: time.Minute}, own: retry.Policy{Max: 10 * time.Second}},
		"Base of type":  {all: retry.Policy{Max: 10 * time.Second}, typed: retry.Policy{Base: time.Minute}},
		"both and Base": {all: retry.Policy{Base: time.Second, Max: 10 * time.Second}, own: retry.Policy{Base: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			share(t, func(s *sharing) {
				if err := controller.SetDefaults(s.cluster, controller.Config[controller.NoObject]{Retry: retry.Config{Every: test.all}}); err != nil {
					s.Fatal(err)
				}
				if err := controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{Retry: retry.Config{Every: test.typed}}); err != nil {
					s.Fatal(err)
				}
				_, err := controller.New(controller.Config[*corev1.Secret]{
					Name: "c", Cluster: s.cluster, Retry: retry.Config{Every: test.own},
					Handler: func(context.Context, *corev1.Secret) error { return nil },
				})
				if err != nil {
					s.Error(err)
				}
			})
		})
	}
}

// SetDefaults does not keep the caller's map.
func TestPoliciesOfDefaultsAreCopied(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		policies := map[retry.Class]retry.Policy{retry.Default: {Base: time.Second}}
		if err := controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{Retry: retry.Config{Policies: policies}}); err != nil {
			s.Fatal(err)
		}
		policies[retry.Default] = retry.Policy{Base: -time.Second}
		_, err := controller.New(controller.Config[*corev1.Secret]{
			Name: "c", Cluster: s.cluster, Handler: func(context.Context, *corev1.Secret) error { return nil },
		})
		if err != nil {
			s.Error(err)
		}
	})
}

// How does a controller have no Timeout?
// All controllers have the defaults if SetDefaults succeeds, and none otherwise.
func TestSetDefaultsOfControllersIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	for range 20 {
		share(t, func(s *sharing) {
			var all sync.WaitGroup
			var setErr error
			var mu sync.Mutex
			timeouts := []time.Duration{}
			controllers := make([]*controller.Controller[*corev1.Secret], 5)
			all.Go(func() {
				setErr = controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{Timeout: time.Minute})
			})
			for n := range controllers {
				all.Go(func() {
					controllers[n] = s.controller(string(rune('a'+n)), func(c *controller.Config[*corev1.Secret]) {
						c.Sources = nil
						c.Handler = func(ctx context.Context, _ *corev1.Secret) error {
							mu.Lock()
							defer mu.Unlock()
							timeouts = append(timeouts, timeoutOf(ctx))
							return nil
						}
					})
				})
			}
			all.Wait()
			ctx, stop := context.WithCancel(s.Context())
			for _, c := range controllers {
				all.Go(func() { _ = c.Run(ctx) })
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			stop()
			all.Wait()
			want := time.Duration(0)
			if setErr == nil {
				want = time.Minute
			}
			for _, got := range timeouts {
				if got != want {
					s.Errorf("%s, want %s", got, want)
				}
			}
			if len(timeouts) != 10 {
				s.Errorf("%d runs", len(timeouts))
			}
		})
	}
}

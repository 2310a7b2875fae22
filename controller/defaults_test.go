package controller_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// timeoutOf returns the Timeout of the handler's context, 0 without one.
func timeoutOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return time.Until(deadline)
}

func TestControllersGetDefaultsOfClusterAndType(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		limiter := &countingLimiter{}
		all := controller.Config[controller.NoObject]{Timeout: time.Minute, ResyncInterval: time.Hour, Queue: controller.QueueConfig{
			Limiter: limiter, Priority: func(informer.Change) controller.Priority { return controller.PriorityHigh },
		}, RunLogger: func(_ *slog.Logger, _ controller.RunRecord) *slog.Logger { panic("guarded") }}
		if err := controller.SetDefaults(s.cluster, all); err != nil {
			s.Fatal(err)
		}
		ofSecrets := controller.Config[*corev1.Secret]{Timeout: time.Second, Runs: controller.RunsConfig{MaxPause: time.Second}}
		if err := controller.SetDefaults(s.cluster, ofSecrets); err != nil {
			s.Fatal(err)
		}
		var mu sync.Mutex
		timeouts := map[string]time.Duration{} // guarded by mu
		note := func(ctx context.Context, name string) error {
			controller.LoggerFrom(ctx).Info("a panic of RunLogger does not fail the run")
			mu.Lock()
			defer mu.Unlock()
			timeouts[name] = timeoutOf(ctx)
			return nil
		}
		secret := func(name string, change func(*controller.Config[*corev1.Secret])) {
			s.run(name, func(c *controller.Config[*corev1.Secret]) {
				c.Sources, c.ResyncInterval = nil, 0
				c.Handler = func(ctx context.Context, _ *corev1.Secret) error { return note(ctx, name) }
				if change != nil {
					change(c)
				}
			})
		}
		secret("of the type", nil)
		secret("of its own", func(c *controller.Config[*corev1.Secret]) { c.Timeout = 2 * time.Second })
		secret("without", func(c *controller.Config[*corev1.Secret]) { c.Timeout = -1 })
		secret("with a Retriever", func(c *controller.Config[*corev1.Secret]) {
			c.Retriever, c.Cluster = informer.Retrieve[*corev1.Secret](s.cluster), nil
		})
		configMaps, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "another type", Cluster: s.cluster,
			Handler: func(ctx context.Context, _ *corev1.ConfigMap) error { return note(ctx, "another type") },
		})
		if err != nil {
			s.Fatal(err)
		}
		testrun.Start(s.T, configMaps.Run)
		s.server.Apply("configmaps", kube.Key{Namespace: "ns", Name: "m"}, "test", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"m"}}`)
		keys := make(chan kube.Key, 1)
		without, err := controller.New(controller.Config[controller.NoObject]{
			Name: "without a kind", Cluster: s.cluster, Sources: []controller.Source{source.Channel("keys", keys)},
			Reconciler: func(ctx context.Context, _ kube.Key) error { return note(ctx, "without a kind") },
		})
		if err != nil {
			s.Fatal(err)
		}
		testrun.Start(s.T, without.Run)
		keys <- kube.Key{Name: "k"}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]time.Duration{
			"of the type": time.Second, "of its own": 2 * time.Second, "without": 0, "with a Retriever": time.Second,
			"another type": time.Minute, "without a kind": time.Minute,
		} {
			if got, ran := timeouts[name]; !ran || got != want {
				s.Errorf("%s: ran %v with the timeout %s, want %s", name, ran, got, want)
			}
		}
		if limiter.calls() == 0 {
			s.Error("the Limiter of the defaults was not called")
		}
	})
}

type countingLimiter struct {
	mu sync.Mutex
	n  int // guarded by mu
}

func (l *countingLimiter) Wait(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return nil
}

func (l *countingLimiter) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func TestSetDefaultsOfControllersReportsMistakes(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		err := controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{
			Name: "n", Cluster: s.cluster, Optional: true, Workers: -1,
			Predicate: func(informer.Change) bool { return true },
			Retry:     retry.Config{Every: retry.Policy{Base: -1}},
		})
		for _, want := range []string{
			"set the defaults of controllers of *v1.Secret: Name, Cluster, Optional, Predicate: only these have defaults: Workers,",
			"Workers is -1", "Base",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				s.Errorf("got %v, want %q", err, want)
			}
		}
		if err := controller.SetDefaults(nil, controller.Config[*corev1.Secret]{}); err == nil {
			s.Error("a nil Cluster is accepted")
		}
		if err := controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{Workers: 1}); err != nil {
			s.Errorf("after mistakes: %v", err)
		}
		if err := controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{Workers: 1}); err == nil || !strings.Contains(err.Error(), "have defaults already") {
			s.Errorf("a second call: %v", err)
		}
		s.controller("a", nil)
		if err := controller.SetDefaults(s.cluster, controller.Config[controller.NoObject]{Workers: 1}); err == nil || !strings.Contains(err.Error(), "created already") {
			s.Errorf("after a controller was created: %v", err)
		}
		if err := controller.SetDefaults(s.cluster, controller.Config[*corev1.ConfigMap]{Workers: 1}); err != nil {
			s.Errorf("of a type without a controller: %v", err)
		}
	})
}

// A field of a struct has a default too, if the controller's own Config sets another field of the struct.
func TestDefaultsAreAppliedFieldByField(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		priorities := 0 // guarded by s.mu
		err := controller.SetDefaults(s.cluster, controller.Config[*corev1.Secret]{
			Queue: controller.QueueConfig{Debounce: time.Second, Priority: func(informer.Change) controller.Priority {
				s.mu.Lock()
				defer s.mu.Unlock()
				priorities++
				return controller.PriorityHigh
			}},
		})
		if err != nil {
			s.Fatal(err)
		}
		s.run("c", func(c *controller.Config[*corev1.Secret]) { c.Sources, c.Queue.Debounce = nil, 5*time.Second })
		time.Sleep(time.Minute)
		s.server.Edit("secrets", kube.Key{Namespace: "ns", Name: "a"}, "user", func(obj map[string]any) bool {
			obj["data"] = map[string]any{"k": "dg=="}
			return true
		})
		time.Sleep(4 * time.Second)
		early := s.runsOf("c") - 2
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if early != 0 || s.handled["c"] != 3 || priorities == 0 {
			s.Errorf("%d runs before Debounce, %d with it, and %d calls of the default Priority", early, s.handled["c"]-2, priorities)
		}
	})
}

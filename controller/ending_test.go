package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ignoring is a Limiter that ignores its context.
type ignoring struct{ block func() }

func (i ignoring) Wait(context.Context) error {
	i.block()
	return nil
}

// TestContract05_RunNamesFunctionsThatIgnoreTheirContext checks each function that gets a context and does not return:
// Run returns an error that names it, all watches have ended, and the controller does not run again before a handler
// has returned.
func TestContract05_RunNamesFunctionsThatIgnoreTheirContext(t *testing.T) {
	type testConfig = controller.Config[configMap]
	for name, test := range map[string]struct {
		set   func(c *testConfig, block func())
		named string
		// refuses is true if another Run returns an error until the function has returned.
		refuses bool
	}{
		"Handler": {func(c *testConfig, block func()) {
			c.Handler = func(context.Context, configMap) error { block(); return nil }
		}, "handlers of ns/a, ns/b:", true},
		"Reconciler": {func(c *testConfig, block func()) {
			c.Handler, c.Reconciler = nil, func(context.Context, kube.Key) error { block(); return nil }
		}, "handlers of ns/a, ns/b:", true},
		"Limiter": {func(c *testConfig, block func()) { c.Queue.Limiter = ignoring{block} }, "Queue.Limiter:", false},
		"Run of a source": {func(c *testConfig, block func()) {
			c.Sources = []controller.Source{controller.SourceFunc(func(context.Context, controller.Enqueue) error {
				block()
				return nil
			})}
		}, "source 0 (controller.SourceFunc):", false},
		"Start of a source": {func(c *testConfig, block func()) {
			c.Sources = []controller.Source{prepared{
				Start: func(context.Context, controller.Enqueue) (func() error, error) {
					block()
					return func() error { return nil }, nil
				},
			}}
		}, "source 0 (controller_test.prepared):", false},
	} {
		for _, drain := range []time.Duration{0, -1, time.Minute} {
			t.Run(fmt.Sprint(name, ", drain time ", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					server := newServer("a", "b")
					c := config(server, func(context.Context, configMap) error { return nil })
					c.Runs.DrainTimeout = drain
					test.set(&c, func() { <-release })
					ctrl := newController(t, c)
					run := func(running time.Duration) (time.Duration, error) {
						ctx, cancel := context.WithTimeout(t.Context(), running)
						defer cancel()
						err := ctrl.Run(ctx)
						deadline, _ := ctx.Deadline()
						return time.Since(deadline), err
					}
					limit := map[time.Duration]time.Duration{0: 28 * time.Second, -1: 3 * time.Second}[drain]
					if drain > 0 {
						limit = drain + 3*time.Second
					}
					took, err := run(time.Minute)
					if err == nil || !strings.Contains(err.Error(), `controller "test"`) || !strings.Contains(err.Error(), test.named) {
						t.Errorf("Run returned %v, want %q in the error", err, test.named)
					}
					if took < limit || took > limit+2*time.Second {
						t.Errorf("Run returned %s after its context, want %s", took, limit)
					}
					if _, _, open := server.Counts(); open != 0 {
						t.Errorf("Run returned with %d open watches", open)
					}
					if took, err := run(time.Minute); test.refuses && (took > -time.Minute || err == nil) {
						t.Errorf("a second Run returned %v after %s, want an error at once", err, took)
					}
					close(release)
					synctest.Wait()
					if _, err := run(time.Minute); err != nil {
						t.Errorf("Run after the end of the function: %v", err)
					}
				})
			})
		}
	}
}

// TestContract05_RunWaitsForHandlersOfOtherElectors checks that Run does not return to an elector that would release the
// lease while a handler may write.
func TestContract05_RunWaitsForHandlersOfOtherElectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended bool
		c := config(newServer("a"), func(context.Context, configMap) error {
			time.Sleep(time.Hour) // ignores its context
			ended = true
			return nil
		})
		c.LeaderElector = plainElector{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := newController(t, c).Run(ctx); err != nil || !ended {
			t.Errorf("Run returned %v, after the handler: %t", err, ended)
		}
	})
}

// plainElector leads always, with contexts that do not know their lease.
type plainElector struct{}

func (plainElector) Ready() error { return nil }

func (plainElector) Run(ctx context.Context, work func(context.Context) error) error {
	return work(ctx)
}

// TestContract05_LostLeadershipEndsControllerWithRunningHandler checks that a controller does not stand for election
// again while a handler of the lost term runs.
func TestContract05_LostLeadershipEndsControllerWithRunningHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		c := config(newServer("a"), func(context.Context, configMap) error { <-release; return nil })
		ctrl := newController(t, c)
		term := leadership.New(nil, time.Hour)
		defer term.Release()
		ctx, cancel := leadership.With(t.Context(), term)
		defer cancel()
		time.AfterFunc(time.Minute, func() { term.Lose(errors.New("stolen")) })
		began := time.Now()
		err := ctrl.Run(ctx)
		if !errors.Is(err, leadership.ErrStillRunning) || errors.Is(err, kube.ErrLeadershipLost) {
			t.Errorf("Run returned %v, want the error of the handler", err)
		}
		if took := time.Since(began); took != time.Minute+28*time.Second {
			t.Errorf("Run returned after %s", took)
		}
	})
}

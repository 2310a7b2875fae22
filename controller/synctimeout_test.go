package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

func TestSyncTimeout(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	refused := func(t *testing.T, name string, optional bool) *informer.Informer[configMap] {
		t.Helper()
		server := newServer()
		server.Fail("list", forbidden)
		server.Fail("watch", forbidden)
		inf, err := informer.New(informer.Config[configMap]{Name: name, Retriever: server, Optional: optional})
		if err != nil {
			t.Fatal(err)
		}
		return inf
	}
	for _, row := range []struct {
		name   string
		change func(t *testing.T, c *controller.Config[configMap])
		want   string // "": the controller runs
	}{
		{"own objects", func(t *testing.T, c *controller.Config[configMap]) {
			t.Helper()
			c.Retriever, c.Informer = nil, refused(t, "own", false)
		}, `"own"`},
		{"reads", func(t *testing.T, c *controller.Config[configMap]) {
			t.Helper()
			c.Reads = []informer.Any{refused(t, "others", false)}
		}, `"others"`},
		{"sources", func(t *testing.T, c *controller.Config[configMap]) {
			t.Helper()
			c.Sources = []controller.Source{source.Mapped(refused(t, "mapped", false), func(configMap) []kube.Key { return nil })}
		}, `"mapped"`},
		{"optional", func(t *testing.T, c *controller.Config[configMap]) {
			t.Helper()
			c.Reads = []informer.Any{refused(t, "optional", true)}
		}, ""},
		{"nothing is missing", func(*testing.T, *controller.Config[configMap]) {}, ""},
		{"no timeout", func(t *testing.T, c *controller.Config[configMap]) {
			t.Helper()
			c.Reads, c.SyncTimeout = []informer.Any{refused(t, "others", false)}, 0
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := config(newServer("a"), func(context.Context, configMap) error { return nil })
				c.SyncTimeout = 2 * time.Minute
				row.change(t, &c)
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := newController(t, c).Run(ctx)
				switch took := time.Since(begun).Round(time.Second); {
				case row.want == "":
					if err != nil || took != time.Hour {
						t.Errorf("Run returned after %s: %v", took, err)
					}
				case err == nil || took != 2*time.Minute:
					t.Errorf("Run returned after %s: %v", took, err)
				default:
					for _, part := range []string{"SyncTimeout (2m0s)", row.want, "forbidden"} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("the error has no %q: %v", part, err)
						}
					}
				}
			})
		})
	}
}

// The time begins anew in each term, and a shutdown before the timeout is not an error.
func TestSyncTimeoutAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Fail("list", apierrors.NewServiceUnavailable("later"))
		server.Fail("watch", apierrors.NewServiceUnavailable("later"))
		c := config(server, func(context.Context, configMap) error { return nil })
		c.SyncTimeout = 2 * time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := newController(t, c).Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// waitingSource is a source whose Start waits until its context ends.
type waitingSource struct{ ready error }

func (s waitingSource) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{
		Name: "waiting",
		Start: func(ctx context.Context, _ controller.Enqueue) (func() error, error) {
			<-ctx.Done()
			return func() error { return nil }, nil
		},
		Ready: func() error { return s.ready },
	}, nil
}

// TestSyncTimeoutOfSourceThatDoesNotStart checks a source that waits in Start. The informers of other sources list
// meanwhile, and a shutdown ends the wait without an error.
func TestSyncTimeoutOfSourceThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		ready   error
		timeout time.Duration
		want    string // "": no error
	}{
		{"unready", errors.New("the queue is missing"), time.Minute, "not within SyncTimeout (1m0s): the queue is missing"},
		{"ready", nil, time.Minute, "source 0 (controller_test.waitingSource) has not started"},
		{"shutdown", nil, 2 * time.Hour, ""},
		{"no timeout", nil, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newServer("a")
				teams, listed := teamsOf(t, server)
				var log journal
				c, runs := teamConfig(nil, waitingSource{row.ready}, teams)
				c.SyncTimeout, c.Logger = row.timeout, log.logger(slog.LevelInfo)
				ctrl, err := controller.New(c)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				time.AfterFunc(30*time.Second, func() {
					if err := listed.Ready(); err != nil {
						t.Errorf("the informer of the other source: %v", err)
					}
					if row.ready != nil && (ctrl.Ready() == nil || !strings.Contains(ctrl.Ready().Error(), row.ready.Error())) {
						t.Errorf("ready: %v", ctrl.Ready())
					}
				})
				begun := time.Now()
				err = ctrl.Run(ctx)
				if took := time.Since(begun); row.want == "" && (err != nil || took != time.Hour) || row.want != "" && took != time.Minute {
					t.Errorf("Run returned after %s: %v", took, err)
				}
				if row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
					t.Errorf("the error is %v, want %q", err, row.want)
				}
				if lines := runs.take(); len(lines) > 0 {
					t.Errorf("runs before the source has started: %s", lines)
				}
				if text := strings.Join(log.take(), "\n"); !strings.Contains(text, "controller waits for its first list") || strings.Contains(text, "controller started") {
					t.Errorf("the log is %s", text)
				}
			})
		})
	}
}

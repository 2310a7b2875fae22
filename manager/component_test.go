package manager_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/manager"
)

var (
	_ manager.Component = (*controller.Controller[*corev1.ConfigMap])(nil)
	_ manager.Component = (*informer.Informer[*corev1.ConfigMap])(nil)
)

// The wrappers of a Runner have its Run and what they embed.
type (
	wrapsRunner    struct{ manager.Runner }
	wrapsComponent struct{ manager.Component }
	wrapsReady     struct {
		manager.Runner
		ready func() error
	}
)

func (w wrapsRunner) Run(ctx context.Context) error    { return w.Runner.Run(ctx) }
func (w wrapsComponent) Run(ctx context.Context) error { return w.Component.Run(ctx) }
func (w wrapsReady) Ready() error                      { return w.ready() }

// A wrapper that hides the readiness or the state of a controller or an informer is in the log.
func TestManagerLogsMethodsThatWrappersHide(t *testing.T) {
	t.Parallel()
	const line = `level=INFO msg="runnable hides methods of what it runs" runnable=wrapped`
	for kind, open := range map[string]func(t *testing.T) manager.Component{
		"controller": func(t *testing.T) manager.Component {
			t.Helper()
			ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
				Name: "c", Retriever: kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true),
				Handler: func(context.Context, *corev1.ConfigMap) error { return nil }, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			return ctrl
		},
		"informer": func(t *testing.T) manager.Component {
			t.Helper()
			objects, err := informer.New(informer.Config[*corev1.ConfigMap]{
				Retriever: kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true), Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			return objects
		},
	} {
		for name, test := range map[string]struct {
			wrap func(inner manager.Component) manager.Runner
			want string
		}{
			"itself":                {func(inner manager.Component) manager.Runner { return inner }, ""},
			"a function":            {func(inner manager.Component) manager.Runner { return manager.RunFunc(inner.Run) }, `methods="[Ready Debug]"`},
			"an embedded Runner":    {func(inner manager.Component) manager.Runner { return wrapsRunner{inner} }, `methods="[Ready Debug]"`},
			"its own Ready":         {func(inner manager.Component) manager.Runner { return wrapsReady{inner, inner.Ready} }, "methods=[Debug]"},
			"an embedded Component": {func(inner manager.Component) manager.Runner { return wrapsComponent{inner} }, ""},
		} {
			t.Run(kind+" and "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					logs := &testlog.Buffer{}
					m, err := manager.New(manager.Config{
						Runnables:     []manager.Runnable{{Name: "wrapped", Runner: test.wrap(open(t))}},
						IgnoreSignals: true, Logger: slog.New(slog.NewTextHandler(logs, nil)),
					})
					if err != nil {
						t.Fatal(err)
					}
					testrun.Start(t, m.Run)
					time.Sleep(time.Hour)
					synctest.Wait()
					text := logs.String()
					if hidden := strings.Count(text, line); hidden > 1 || (hidden == 1) != (test.want != "") || !strings.Contains(text, test.want) {
						t.Errorf("want %q in the log:\n%s", test.want, text)
					}
				})
			})
		}
	}
}

// The manager uses what a wrapper that embeds a Component keeps.
func TestWrapperOfComponentKeepsReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := manager.New(manager.Config{
			Runnables: []manager.Runnable{
				{Runner: wrapsComponent{&unready{}}, Group: manager.Always},
				{Name: "later", Runner: manager.RunFunc(func(context.Context) error { t.Error("started"); return nil })},
			},
			IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		time.Sleep(time.Minute)
		if err := m.Ready(); err == nil || !strings.HasPrefix(err.Error(), "unready: context deadline exceeded\n") {
			t.Errorf("Ready returned %v", err)
		}
	})
}

// unready is a Component that never becomes ready.
type unready struct{}

func (*unready) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (*unready) Name() string                  { return "unready" }
func (*unready) Ready() error                  { return context.DeadlineExceeded }
func (*unready) Debug(string) (any, error)     { return nil, nil }

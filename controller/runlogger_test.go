package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/evenkeel-go/evenkeel/controller"
)

func TestRunLogger(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		derive func(*slog.Logger, controller.RunRecord) *slog.Logger
		want   string
	}{
		{"attributes", func(l *slog.Logger, run controller.RunRecord) *slog.Logger {
			return l.With("tenant", run.Key.Namespace)
		}, "tenant=ns"},
		{"nil", func(*slog.Logger, controller.RunRecord) *slog.Logger { return nil }, "run.key=ns/a"},
		{"panic", func(*slog.Logger, controller.RunRecord) *slog.Logger { panic("no logger") }, "run.key=ns/a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log journal
				c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
					controller.LoggerFrom(ctx).Info("from the handler")
					return controller.Terminal(errors.New("broken"))
				})
				c.Logger, c.RunLogger = log.logger(slog.LevelInfo), row.derive
				start(t, newController(t, c))
				synctest.Wait()
				found := 0
				lines := log.take()
				if logged := strings.Contains(strings.Join(lines, "\n"), `function=Config.RunLogger error="no logger"`); logged != (row.name == "panic") {
					t.Errorf("a panic is logged: %t", logged)
				}
				for _, line := range lines {
					if strings.Contains(line, "run.key=ns/a") && strings.Contains(line, row.want) {
						found++
					}
				}
				if found != 2 { // the handler's line, and the controller's
					t.Errorf("%d lines", found)
				}
			})
		})
	}
}

package controller_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
)

// lines contains the output of the default logger.
type lines struct{ testlog.Buffer }

func (l *lines) with(text string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// TestWritesWithoutContextOfRunAreReported checks that a write with a context other than the run's is reported once for
// each call site. Such a write is not in the run's record, is not waited for, and is not stopped when leadership is
// lost.
func TestWritesWithoutContextOfRunAreReported(t *testing.T) {
	var logged lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		own := t.Context()
		var wait sync.WaitGroup
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			_ = w.create(ctx, "parts", "Part", "p")
			_ = w.create(context.WithoutCancel(ctx), "parts", "Part", "p")
			wait.Go(func() { _ = w.create(ctx, "parts", "Part", "p") })
			wait.Wait()

			for range 3 {
				_ = w.create(own, "parts", "Part", "p")
			}
			wait.Go(func() {
				wait.Go(func() { _ = w.create(own, "parts", "Part", "p") })
			})
			wait.Wait()
			return nil
		})
		c.Name = "stray"
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		w.put("widgets", "a", 2)
		time.Sleep(time.Minute)
		if runs := ctrl.RecentRuns(); len(runs) < 2 {
			t.Errorf("%d runs, want several", len(runs))
		}
		_ = w.create(own, "parts", "Part", "p") // outside any handler
	})
	found := logged.with("a handler wrote with a context that is not its run's")
	if len(found) != 2 {
		t.Errorf("%d call sites were reported, want 2:\n%s", len(found), logged.String())
	}
	for _, line := range found {
		for _, want := range []string{"stray_test.go:", "controller=stray", "verb=create", "resource=parts"} {
			if !strings.Contains(line, want) {
				t.Errorf("%q is not in %s", want, line)
			}
		}
	}
}

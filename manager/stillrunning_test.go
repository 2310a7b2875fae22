package manager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// A runnable has returned although a handler still runs: the lease is kept until it expires.
func TestContract05_RemovedRunnableKeepsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		m := launch(t, Config{LeaderElection: lease(t, server, "me"), Runnables: []Runnable{
			{Runner: &part{name: "ctl", journal: &journal{}, run: func(ctx context.Context) error {
				<-ctx.Done()
				return fmt.Errorf("handlers of shop/web: %w", leadership.ErrStillRunning)
			}}},
		}})
		pass(time.Minute)
		if holder(server) != "me" {
			t.Fatal("not leading")
		}
		if err := m.Remove(t.Context(), "ctl"); !errors.Is(err, leadership.ErrStillRunning) {
			t.Errorf("Remove: %v", err)
		}
		if err := m.stop(); err != nil { // the error was returned by Remove, or logged before the restart
			t.Errorf("Run: %v", err)
		}
		if got := holder(server); got != "me" {
			t.Errorf("the lease was released (holder %q) while a handler runs", got)
		}
	})
}

func TestContract05_RestartedRunnableKeepsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		m := launch(t, Config{LeaderElection: lease(t, server, "me"), Runnables: []Runnable{
			{OnFailure: Restart, Runner: &part{name: "ctl", journal: &journal{}, run: func(context.Context) error {
				return fmt.Errorf("source 1: broken; handlers of shop/web: %w", leadership.ErrStillRunning)
			}}},
		}})
		pass(time.Minute)
		if holder(server) != "me" {
			t.Fatal("not leading")
		}
		if err := m.stop(); err != nil { // the error was returned by Remove, or logged before the restart
			t.Errorf("Run: %v", err)
		}
		if got := holder(server); got != "me" {
			t.Errorf("the lease was released (holder %q) while a handler runs", got)
		}
	})
}

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

// stillRunning returns a controller with a handler that still runs when Run returns.
func stillRunning() *part {
	return &part{name: "ctl", journal: &journal{}, run: func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("handlers of shop/web: %w", leadership.ErrStillRunning)
	}}
}

// A runnable has returned although a handler still runs: the lease is kept until it expires.
func TestContract05_RemovedRunnableKeepsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		m := launch(t, Config{LeaderElection: lease(t, server, "me"), Runnables: []Runnable{{Runner: stillRunning()}}})
		pass(time.Minute)
		if holder(server) != "me" {
			t.Fatal("not leading")
		}
		if err := m.Remove(t.Context(), "ctl"); !errors.Is(err, leadership.ErrStillRunning) {
			t.Errorf("Remove: %v", err)
		}
		m.stopWithoutError() // the error was returned by Remove, or logged before the restart
		expectHolder(t, server, "me", "while a handler runs")
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
		m.stopWithoutError() // the error was returned by Remove, or logged before the restart
		expectHolder(t, server, "me", "while a handler runs")
	})
}

// An error that contains both the end of the context and a handler that still runs keeps the lease.
func TestContract05_JoinedErrorKeepsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		m := launch(t, Config{LeaderElection: lease(t, server, "me"), Runnables: []Runnable{
			{Runner: &part{name: "ctl", journal: &journal{}, run: func(ctx context.Context) error {
				<-ctx.Done()
				return errors.Join(fmt.Errorf("handlers of shop/web: %w", leadership.ErrStillRunning), ctx.Err())
			}}},
		}})
		pass(time.Minute)
		if err := m.stop(); !errors.Is(err, leadership.ErrStillRunning) {
			t.Errorf("Run returned %v", err)
		}
		expectHolder(t, server, "me", "after the end")
	})
}

// The name of a removed Runnable can be used again, although one of its handlers did not return in time.
func TestRemovedRunnableThatStillRunsFreesItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		part := stillRunning()
		m := launch(t, Config{Runnables: []Runnable{{Runner: part}}})
		pass(time.Minute)
		for range 2 {
			if err := m.Remove(t.Context(), "ctl"); !errors.Is(err, leadership.ErrStillRunning) {
				t.Errorf("Remove returned %v", err)
			}
			if err := m.Add(Runnable{Runner: part}); err != nil {
				t.Error(err)
			}
			pass(time.Minute)
		}
		_ = m.stop() // the last one still runs too
	})
}

// A handler of a removed Runnable may write for as long as it runs, so the process ends when it loses its lease.
func TestLossOfLeadershipAfterRemovalOfRunningHandlerEndsProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		m := launch(t, Config{LeaderElection: lease(t, server, "me"), Runnables: []Runnable{{Runner: stillRunning()}}})
		pass(time.Minute)
		if err := m.Remove(t.Context(), "ctl"); !errors.Is(err, leadership.ErrStillRunning) {
			t.Errorf("Remove returned %v", err)
		}
		pass(time.Hour)
		steal(server, "other")
		expectError(t, <-m.result, `runnable "ctl": handlers of shop/web: still running`)
		expectHolder(t, server, "other", "after the end")
	})
}

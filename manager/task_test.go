package manager

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// task returns a Runnable that ends after a time with an error.
func task(j *journal, name string, g Group, duration time.Duration, errs ...error) Runnable {
	runs := 0
	return Runnable{Group: g, Task: true, Runner: &part{name: name, journal: j, run: func(ctx context.Context) error {
		defer func() { runs++ }()
		select {
		case <-time.After(duration):
		case <-ctx.Done():
			return ctx.Err()
		}
		if runs < len(errs) {
			return errs[runs]
		}
		return nil
	}}}
}

func TestTasksRunBeforeTheirGroup(t *testing.T) {
	t.Parallel()
	for _, g := range []Group{Servers, Caches, Always, LeaderOnly} {
		t.Run(g.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				m, err := New(Config{IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler), Runnables: []Runnable{
					{Runner: &part{name: "other", journal: j}, Group: g},
					task(j, "short", g, time.Second),
					task(j, "long", g, 3*time.Second),
				}})
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, m.Run)
				time.Sleep(2 * time.Second)
				if got := j.take(); !strings.HasPrefix(got, "+") || strings.Contains(got, "other") || !strings.HasSuffix(got, "-short") {
					t.Errorf("before the end of the long task: %s", got)
				}
				if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "long: the task has not ended") ||
					!strings.Contains(err.Error(), "other: not started yet") || strings.Contains(err.Error(), "short") {
					t.Errorf("Ready: %v", err)
				}
				// What is added meanwhile waits for the tasks too, except a task.
				lateTask := task(j, "late", g, 500*time.Millisecond)
				if err := m.Add(Runnable{Runner: &part{name: "added", journal: j}, Group: g}, lateTask); err != nil {
					t.Error(err)
				}
				j.expect(t, "+late")
				time.Sleep(2 * time.Second)
				if got := j.take(); !strings.HasPrefix(got, "-late, -long, +") || !strings.Contains(got, "+other") || !strings.Contains(got, "+added") {
					t.Errorf("after the tasks: %s", got)
				}
				if err := m.Ready(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFailedTasks(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, row := range []struct {
		name   string
		policy FailurePolicy
		want   string // after 5 s
		fails  bool
	}{
		{"EndProcess", EndProcess, "+task, -task", true},
		{"Restart", Restart, "+task, -task, +task, -task, +other", false},
		{"Continue", Continue, "+task, -task, +other", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				failing := task(j, "task", Caches, time.Second, broken)
				failing.OnFailure = row.policy
				m, err := New(Config{IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler), Runnables: []Runnable{
					failing, {Runner: &part{name: "other", journal: j}, Group: Caches},
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- m.Run(ctx) }() // waited for below
				time.Sleep(5 * time.Second)
				j.expect(t, row.want)
				stop()
				if err := <-ended; errors.Is(err, broken) != row.fails {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// A shutdown during a task cancels it, and does not start its group.
func TestShutdownDuringTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		m, err := New(Config{IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler), Runnables: []Runnable{
			task(j, "task", Always, time.Hour), {Runner: &part{name: "other", journal: j}, Group: Always},
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		j.expect(t, "+task, -task")
	})
}

// A task of LeaderOnly runs in each term. A loss during the task cancels it, and the other runnables do not start.
func TestTaskInTerms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		server := newLeaseServer(t)
		m := launch(t, Config{
			Runnables:      []Runnable{task(&j, "task", LeaderOnly, 10*time.Second), {Runner: &part{name: "other", journal: &j}}},
			LeaderElection: lease(t, server, "anna"),
		})
		pass(5 * time.Second)
		j.expect(t, "+task")
		steal(server, "bert")
		pass(10 * time.Second)
		j.expect(t, "-task")
		pass(25 * time.Second) // bert does not renew, so anna leads again
		j.expect(t, "+task, -task, +other")
		steal(server, "bert")
		pass(22 * time.Second)
		j.expect(t, "-other, +task")
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		j.expect(t, "-task")
	})
}

// TestRemovedTask checks that a group starts when a task is removed that does not end, fails, or waits for a restart. A
// task that ignores its context holds the group up until it returns.
func TestRemovedTask(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		run    func(ctx context.Context) error
		starts time.Duration // after Remove
		err    string        // of Remove
	}{
		{"never ends", func(ctx context.Context) error { <-ctx.Done(); return nil }, 0, ""},
		{"returns an error at its end", func(ctx context.Context) error { <-ctx.Done(); return errors.New("cut off") }, 0, "cut off"},
		{"waits for a restart", func(context.Context) error { return errors.New("broken") }, 0, ""},
		{"panics", func(context.Context) error { panic("broken") }, 0, ""},
		{"ignores its context", func(context.Context) error { time.Sleep(time.Minute); return nil }, 50 * time.Second, "did not end within 5s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				m, err := New(Config{IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler), Runnables: []Runnable{
					{Name: "task", Runner: RunFunc(row.run), Group: Caches, Task: true, OnFailure: Restart, DrainTime: 5 * time.Second},
					{Runner: &part{name: "other", journal: j}, Group: Caches},
				}})
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, m.Run)
				time.Sleep(10 * time.Second)
				j.expect(t, "")
				if err := m.Remove(t.Context(), "task"); (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
					t.Errorf("Remove: %v, want %q", err, row.err)
				}
				if row.starts > 0 {
					time.Sleep(row.starts - 6*time.Second)
					j.expect(t, "")
				}
				time.Sleep(2 * time.Second)
				j.expect(t, "+other")
				if err := m.Ready(); err != nil {
					t.Errorf("Ready: %v", err)
				}
			})
		})
	}
}

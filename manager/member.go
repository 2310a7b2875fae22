package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The delays of Restart, and the time after which a run counts as successful.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

// member is a Runnable of a Manager.
type member struct {
	Runnable

	// Guarded by Manager.mu.
	cancel  context.CancelCauseFunc // nil until it was started
	ended   chan struct{}           // closed when it has ended; nil until it was started
	begun   bool                    // its Run was called since it was started
	err     error                   // of its last run
	restart time.Time               // when it starts again; zero unless it waits for that
	held    string                  // why a task that has not ended needs the members that wait for it
	started func() error            // set by its Run: why the start has to wait for it; nil if its Ready tells
	removed bool
}

func newMember(r Runnable) *member { return &member{Runnable: r} }

// startLocked starts a member. ctx is the context of its group. mu must be held.
func (m *Manager) startLocked(ctx context.Context, r *member) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	r.cancel, r.ended, r.begun, r.err, r.held = cancel, ended, false, nil, ""
	go func() { // waited for by await
		defer close(ended)
		defer cancel(nil)
		m.mu.Lock()
		r.begun = true
		m.mu.Unlock()
		m.supervise(ctx, r)
	}()
}

// supervise runs a member until its context ends, it finishes, or its failure is not followed by a restart.
func (m *Manager) supervise(ctx context.Context, r *member) {
	logger := m.logger.With("runnable", r.Name, "group", r.Group.String())
	for delay := firstRestart; ; delay = min(2*delay, longestRestart) {
		logger.InfoContext(ctx, "runnable started")
		begun := time.Now()
		running := observers.WithLogger(m.withStart(ctx, r), logger)
		err := m.guard.Try("Run of runnable "+r.Name, func() error { return r.Runner.Run(running) })
		if time.Since(begun) > longestRestart {
			delay = firstRestart
		}
		stopped := ctx.Err() != nil || m.lostLeadership(r, err)
		if stopped && !errors.Is(err, leadership.ErrStillRunning) &&
			(errors.Is(err, context.Canceled) || errors.Is(err, kube.ErrLeadershipLost)) {
			err = nil
		}
		restart := err != nil && !stopped && r.OnFailure == Restart
		m.finished(r, err, restart, stopped, delay)
		switch {
		case err == nil:
			logger.InfoContext(ctx, "runnable ended")
			return
		case !restart:
			logger.ErrorContext(ctx, "runnable failed", "error", err)
			return
		}
		logger.WarnContext(ctx, "runnable failed, restart delayed", "error", err, "delay", delay)
		if !m.waitForRestart(ctx, r, delay) {
			return
		}
	}
}

// lostLeadership reports whether a member returned err because leadership was lost. A member may see this, as a write
// that was rejected, shortly before its context ends.
func (m *Manager) lostLeadership(r *member, err error) bool {
	return m.elector != nil && r.Group == LeaderOnly && errors.Is(err, kube.ErrLeadershipLost) &&
		!m.elector.Status().Leading
}

// finished records the end of a member's Run.
func (m *Manager) finished(r *member, err error, restart, stopped bool, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.err, r.started = err, nil
	if restart {
		r.restart = time.Now().Add(delay)
		return
	}
	named := fmt.Errorf("runnable %q: %w", r.Name, err)
	switch {
	case r.removed:
		m.forgetLocked(r)
	case err == nil:
	case stopped:
		if m.phase >= phaseStopping {
			m.failures = append(m.failures, named)
		}
	case r.OnFailure == EndProcess:
		m.stopLocked("runnable "+r.Name+" failed", named)
	}
}

// waitForRestart reports whether a member must be started again.
func (m *Manager) waitForRestart(ctx context.Context, r *member, delay time.Duration) bool {
	passed := retryrules.Wait(ctx, delay)
	m.mu.Lock()
	defer m.mu.Unlock()
	r.restart = time.Time{}
	if passed {
		return true
	}
	if !errors.Is(r.err, leadership.ErrStillRunning) { // that one keeps the lease
		r.err = nil // it was logged
	}
	if r.removed {
		m.forgetLocked(r)
	}
	return false
}

// withStart returns the context of a member: a task can let the others start before it ends, and an informer or a
// controller before it is ready. Those that run within another Runner do not count: their methods are unknown, so the
// log has those that the other Runner lacks.
func (m *Manager) withStart(ctx context.Context, r *member) context.Context {
	if !r.Task {
		return observers.WithStarted(ctx, func(runner any, waits func() error) {
			if runner == any(r.Runner) {
				m.mu.Lock()
				defer m.mu.Unlock()
				r.started = waits
			} else if hidden := hiddenBy(r.Runner, runner); len(hidden) > 0 {
				m.logger.InfoContext(ctx, "runnable hides methods of what it runs", "runnable", r.Name, "type",
					fmt.Sprintf("%T", runner), "methods", hidden, "hint", "embed it, or add a Runnable for it")
			}
		})
	}
	return observers.WithStart(ctx, func(reason string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.held = reason
	})
}

// hiddenBy returns the methods of Component that a Runner lacks, and that another one has, which it runs.
func hiddenBy(outer Runner, inner any) (hidden []string) {
	_, has := inner.(readied)
	if _, shows := outer.(readied); has && !shows {
		hidden = append(hidden, "Ready")
	}
	_, has = inner.(debugged)
	if _, shows := outer.(debugged); has && !shows {
		hidden = append(hidden, "Debug")
	}
	return hidden
}

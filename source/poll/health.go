package poll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// maxReasons is how many different failure reasons are logged until a poll succeeds. More reasons mean that the error
// texts never repeat, for example because they contain a request ID.
const maxReasons = 16

// Health is the state of a Source at one moment.
type Health struct {
	// Source is the source's name.
	Source string
	// Running is true while a controller runs the source.
	Running bool
	// Synced is true once a poll has succeeded since the source was started.
	Synced bool
	// Items is the number of items of the last successful poll.
	Items int
	// Polls is the number of polls since the source was created, and Failures how many of them failed.
	Polls, Failures int64
	// LastSuccess is when the last poll succeeded. Zero: no poll has succeeded since the source was started.
	LastSuccess time.Time
	// Err is why the last poll failed, or that it has not returned in time. Nil if it succeeded.
	Err error
	// ErrSince is when polls began to fail.
	ErrSince time.Time
}

// Ready returns nil if the last poll succeeded, however few items it found; otherwise an error with the reason. It
// makes no request.
func (h Health) Ready() error {
	switch {
	case !h.Running:
		return fmt.Errorf("source %q: not running", h.Source)
	case h.Err != nil:
		return fmt.Errorf("source %q cannot poll: %w", h.Source, h.Err)
	case !h.Synced:
		return fmt.Errorf("source %q: the first poll is under way", h.Source)
	}
	return nil
}

// Ready is Health().Ready(). Controller.Ready calls it.
func (s *Source) Ready() error { return s.Health().Ready() }

// Health returns the source's state. If several controllers run the source, it merges the states of their runs: Synced
// is true if all are, Items is the largest, LastSuccess and ErrSince are the earliest, and Err joins the errors.
func (s *Source) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{
		Source: s.config.Name, Failures: s.failures.Load(), Polls: s.polls.Load(),
		Running: len(s.runs) > 0, Synced: len(s.runs) > 0,
	}
	var errs []error
	for i, r := range s.runs {
		state := r.health()
		h.Synced = h.Synced && state.synced
		h.Items = max(h.Items, state.items)
		if i == 0 || state.success.Before(h.LastSuccess) {
			h.LastSuccess = state.success
		}
		if state.err != nil {
			errs = append(errs, state.err)
			if h.ErrSince.IsZero() || state.since.Before(h.ErrSince) {
				h.ErrSince = state.since
			}
		}
	}
	h.Err = errors.Join(errs...)
	return h
}

// begin registers a run. From then on, Item returns ErrNotPolled until a poll has succeeded, unless another controller
// runs the source: no handler may read what a poll of an earlier term has found.
func (s *Source) begin(enqueue controller.Enqueue, logger *slog.Logger) *sourceRun {
	r := &sourceRun{source: s, enqueue: enqueue, logger: logger, known: map[string]knownItem{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		s.kept = keptItems{} // not earlier: handlers of the previous run may have read it
	}
	s.runs = append(s.runs, r)
	return r
}

func (s *Source) end(r *sourceRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = slices.DeleteFunc(s.runs, func(other *sourceRun) bool { return other == r })
}

// health returns the state. A poll that takes more than twice Timeout is an error: its Poller ignores the context, and
// would otherwise never be reported.
func (r *sourceRun) health() runState {
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	timeout := r.source.config.Timeout
	if timeout <= 0 || state.began.IsZero() || time.Since(state.began) <= 2*timeout {
		return state
	}
	state.err = fmt.Errorf("the poll under way has taken %s, though its context ended after Timeout, %s: the Poller "+
		"does not listen to it",
		time.Since(state.began).Round(time.Second), timeout)
	if state.since.IsZero() {
		state.since = state.began.Add(timeout)
	}
	return state
}

// failed stores why a poll failed, and logs it once per reason.
func (r *sourceRun) failed(ctx context.Context, err error, wait time.Duration) {
	r.source.polls.Add(1)
	r.source.failures.Add(1)
	reason := usercode.SteadyText(err)
	r.mu.Lock()
	if r.state.err == nil {
		r.state.since, r.state.logged = r.state.began, map[string]bool{}
	}
	r.state.began = time.Time{}
	r.state.err = err
	quiet := r.state.logged[reason] || len(r.state.logged) == maxReasons
	if !quiet {
		r.state.logged[reason] = true
	}
	r.mu.Unlock()
	if quiet {
		return
	}
	logger := r.logger.With("source", r.source.config.Name, "error", err, "again_in", wait.Round(time.Millisecond))
	if panicked, ok := errors.AsType[*usercode.PanicError](err); ok {
		logger.ErrorContext(ctx, "a source's poll panicked, will try again", "stack", string(panicked.Stack))
		return
	}
	logger.WarnContext(ctx, "a source cannot poll, will try again")
}

// succeeded stores that a poll succeeded, and logs the recovery after failures.
func (r *sourceRun) succeeded(ctx context.Context) {
	r.source.polls.Add(1)
	r.mu.Lock()
	failure, since := r.state.err, r.state.since
	r.state = runState{synced: true, items: len(r.known), success: time.Now()}
	r.mu.Unlock()
	if failure != nil {
		r.logger.InfoContext(ctx, "a source polls again",
			"source", r.source.config.Name, "after", time.Since(since).Round(time.Millisecond))
	}
}

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

// Ready returns nil if the last poll succeeded, however few items it found; otherwise an error with the reason, of each
// controller that runs the source. It makes no request. Controller.Ready calls it.
func (s *Source) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	synced := true
	var errs []error
	for _, r := range s.runs {
		state := r.health()
		synced = synced && state.synced
		if state.err != nil {
			errs = append(errs, state.err)
		}
	}
	switch err := errors.Join(errs...); {
	case len(s.runs) == 0:
		return fmt.Errorf("source %q: not running", s.config.Name)
	case err != nil:
		return fmt.Errorf("source %q cannot poll: %w", s.config.Name, err)
	case !synced:
		return fmt.Errorf("source %q: the first poll is under way", s.config.Name)
	}
	return nil
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
	r.mu.Lock()
	failure, since := r.state.err, r.state.since
	r.state = runState{synced: true}
	r.mu.Unlock()
	if failure != nil {
		r.logger.InfoContext(ctx, "a source polls again",
			"source", r.source.config.Name, "after", time.Since(since).Round(time.Millisecond))
	}
}

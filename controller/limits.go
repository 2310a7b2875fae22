package controller

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// limits calls Config.Queue.Limiter in one term.
type limits struct {
	// Immutable.
	limiter interface { // nil: no limit
		Wait(ctx context.Context) error
	}
	guard  *usercode.Guard
	logger *slog.Logger

	logged atomic.Bool // an error of the limiter
}

// withoutDeadline hides the deadline of a context, which still ends the context: *rate.Limiter returns an error at once
// if it would have to wait until after the deadline, and the run would start.
type withoutDeadline struct{ context.Context } //nolint:containedctx // it is a context

// Deadline implements context.Context.
func (withoutDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// wait waits until a run may start. It returns false if ctx ends before.
func (l *limits) wait(ctx context.Context) bool {
	if l.limiter == nil {
		return true
	}
	var err error
	wait := func() { err = l.limiter.Wait(withoutDeadline{ctx}) } //nolint:contextcheck // it ends with ctx
	_ = l.guard.Call("Queue.Limiter", wait, nil)                  // it logs a panic
	if ctx.Err() != nil {
		return false
	}
	if err != nil && l.logged.CompareAndSwap(false, true) {
		l.logger.WarnContext(ctx, "limiter failed, runs are not limited", "error", usercode.Error(err))
	}
	return true
}

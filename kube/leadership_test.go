package kube_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

var errTaken = errors.New("another process leads")

// lead returns a leadership of one hour, and a context that carries it.
func lead(t *testing.T) (*leadership.Term, context.Context) {
	t.Helper()
	held := leadership.New(nil, time.Hour)
	ctx, cancel := leadership.With(t.Context(), held)
	t.Cleanup(func() { held.Release(); cancel() })
	return held, ctx
}

func isLost(ctx context.Context) bool {
	select {
	case <-leadership.Lost(ctx):
		return true
	default:
		return false
	}
}

func TestContextWithoutLeadershipIsNeverLost(t *testing.T) {
	t.Parallel()
	if lost := leadership.Lost(t.Context()); lost != nil {
		t.Errorf("without a lease, LeadershipLost is %v, want a nil channel", lost)
	}
}

// The end of the context is not a loss of leadership: while work drains, its context has ended, and the lease can still
// be lost.
func TestLeadershipOutlivesContext(t *testing.T) {
	t.Parallel()
	held, leading := lead(t)
	ctx, cancel := context.WithCancel(leading)
	for name, ctx := range map[string]context.Context{"derived": ctx, "detached": context.WithoutCancel(ctx)} {
		if isLost(ctx) {
			t.Errorf("%s: leadership is lost from the start", name)
		}
	}
	cancel()
	if isLost(ctx) {
		t.Error("the end of the context counts as lost leadership")
	}
	held.Lose(errTaken)
	for name, ctx := range map[string]context.Context{"derived": ctx, "detached": context.WithoutCancel(ctx)} {
		if !isLost(ctx) {
			t.Errorf("%s: the loss does not show", name)
		}
	}
}

func TestInnermostLeaseWins(t *testing.T) {
	t.Parallel()
	_, outer := lead(t)
	inner := leadership.New(nil, time.Hour)
	ctx, cancel := leadership.With(outer, inner)
	defer cancel()
	inner.Lose(errTaken)
	if !isLost(ctx) {
		t.Error("the inner lease is lost, and it does not show")
	}
}

// Contexts must be cancelled when Lose returns, not later by other goroutines.
func TestContract06_LossCancelsContextsAtOnce(t *testing.T) {
	t.Parallel()
	held, leading := lead(t)
	stopped, stop := context.WithCancel(leading)
	outliving, cancel := kube.UntilLeadershipLost(stopped)
	defer cancel()
	handler, cancelHandler := context.WithTimeout(outliving, time.Hour)
	defer cancelHandler()
	stop()
	if outliving.Err() != nil || handler.Err() != nil {
		t.Fatal("the end of the context ends what is to outlive it")
	}
	held.Lose(errTaken)
	for name, ctx := range map[string]context.Context{"the work's": leading, "outliving": outliving, "derived from outliving": handler} {
		if cause := context.Cause(ctx); !errors.Is(cause, kube.ErrLeadershipLost) || !errors.Is(cause, errTaken) {
			t.Errorf("%s context: the cause is %v, want ErrLeadershipLost and the reason", name, cause)
		}
	}
	stoppedContext, cancelLate := kube.UntilLeadershipLost(stopped)
	defer cancelLate()
	if stoppedContext.Err() == nil {
		t.Error("a context that is made after the loss is not cancelled")
	}
}

// An elector that cancels its work with ErrLeadershipLost, without a Leadership.
func TestUntilLeadershipLostOfOtherElectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		before, cancelBefore := kube.UntilLeadershipLost(ctx)
		defer cancelBefore()
		cancel(kube.ErrLeadershipLost)
		after, cancelAfter := kube.UntilLeadershipLost(ctx)
		defer cancelAfter()
		synctest.Wait()
		if before.Err() == nil || after.Err() == nil {
			t.Errorf("contexts made before and after the loss: %v, %v", before.Err(), after.Err())
		}
	})
}

func TestUntilLeadershipLostWithoutLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopped, stop := context.WithCancel(t.Context())
		ctx, cancel := kube.UntilLeadershipLost(stopped)
		stop()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("it ends with the context that it was made of: %v", ctx.Err())
		}
		cancel()
		if ctx.Err() == nil {
			t.Error("cancel does not end it")
		}
	})
}

// The deadline must end the leadership, even if no timer has fired.
func TestContract06_DeadlineEndsLeadership(t *testing.T) {
	t.Parallel()
	var now time.Duration // the timer, of real time, comes an hour later
	held := leadership.New(func() time.Duration { return now }, time.Hour)
	ctx, cancel := leadership.With(t.Context(), held)
	defer cancel()
	now = 59 * time.Minute
	if err := held.Extend(2 * time.Hour); err != nil {
		t.Fatalf("extended in time: %v", err)
	}
	if err := held.Extend(time.Hour); err != nil || held.Err() != nil {
		t.Fatalf("an earlier deadline: %v", err)
	}
	now = 2*time.Hour - 1
	if err := held.Err(); err != nil {
		t.Fatalf("before the deadline: %v", err)
	}
	now = 2 * time.Hour
	if err := held.Extend(3 * time.Hour); !errors.Is(err, kube.ErrLeadershipLost) {
		t.Errorf("extended after the deadline: %v, want ErrLeadershipLost", err)
	}
	if !isLost(ctx) || ctx.Err() == nil {
		t.Error("the call that found the deadline passed has not ended the leadership")
	}
}

// A timer must end a leadership without calls.
func TestContract06_DeadlineCancelsIdleWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		held := leadership.New(nil, 10*time.Second)
		ctx, cancel := leadership.With(t.Context(), held)
		defer cancel()
		time.Sleep(8 * time.Second)
		if err := held.Extend(18 * time.Second); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if took := time.Since(start); took != 18*time.Second || !errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
			t.Errorf("cancelled after %s with the cause %v, want the second deadline", took, context.Cause(ctx))
		}
	})
}

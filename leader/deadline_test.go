package leader

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Whoever deletes the lease takes leadership from the process that has it: that process notices at
// its next renewal, and nobody else leads before its deadline, whether or not it can reach the API
// server.
func TestContract06_DeletedLeaseIsALoss(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(ctx context.Context, verb string) error{
		"the leader renews": nil, "the leader cannot reach the API server": hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				client := s.client("a")
				var log logs
				var lostAt, secondAt time.Duration
				first := run(t, newTestElector(t, client, log.into), func(ctx context.Context) error {
					<-ctx.Done()
					lostAt = time.Since(s.start)
					if !errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
						t.Errorf("the cause is %v, want ErrLeadershipLost", context.Cause(ctx))
					}
					<-time.After(time.Hour) // so that it does not stand again
					return nil
				})
				pass(time.Second)
				second := run(t, newTestElector(t, s.client("b")), func(ctx context.Context) error {
					secondAt = time.Since(s.start)
					return untilDone(ctx)
				})
				pass(time.Minute)
				deleted := time.Since(s.start)
				client.fail(trouble)
				s.remove()
				pass(time.Minute)
				limit := DefaultRetryPeriod
				if trouble != nil {
					limit = DefaultRenewDeadline
				}
				if lostAt == 0 || lostAt > deleted+limit {
					t.Errorf("the lease was deleted at %s, and lost at %s, want within %s", deleted, lostAt, limit)
				}
				if secondAt < deleted+DefaultLeaseDuration || secondAt > deleted+DefaultLeaseDuration+10*time.Second {
					t.Errorf("the lease was deleted at %s, and another leads at %s, want after a LeaseDuration", deleted, secondAt)
				}
				if log.count("work cancelled") != 1 {
					t.Errorf("logged:\n%s", &log.buffer)
				}
				if err := second.stop(); err != nil {
					t.Errorf("Run returned %v", err)
				}
				_ = first.stop()
			})
		})
	}
}

// A candidate cannot tell a first installation from a lease that was deleted under a leader.
func TestMissingLeaseHasNoLeaderForALeaseDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.remove()
		var log logs
		e := newTestElector(t, s.client("a"), log.into)
		r := run(t, e, untilDone)
		pass(DefaultLeaseDuration - 1)
		if s.holder() != noLeaderYet || e.Ready() == nil || e.Status().Leader != "" {
			t.Errorf("before the lease has expired, it is %v and the status %+v", s.read(), e.Status())
		}
		if log.count("missing lease created") != 1 {
			t.Errorf("logged:\n%s", &log.buffer)
		}
		pass(5 * time.Second)
		if s.holder() != "a" || e.Ready() != nil {
			t.Errorf("after the delay the lease is %v and the status %+v", s.read(), e.Status())
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A leader that gains a lease and has it deleted between two looks of a candidate is safe from that
// candidate, which knew before that the lease was missing.
func TestLeaseDeletedBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.remove()
		candidate := newTestElector(t, s.client("candidate"))
		var ledAt time.Duration
		r := run(t, candidate, func(ctx context.Context) error {
			ledAt = time.Since(s.start)
			return untilDone(ctx)
		})
		pass(DefaultLeaseDuration - time.Second)
		// Another candidate gains the lease, and it is deleted at once.
		s.remove()
		deleted := time.Since(s.start)
		pass(time.Minute)
		if ledAt < deleted+DefaultLeaseDuration {
			t.Errorf("the lease was deleted at %s, and another process leads at %s, want after a LeaseDuration", deleted, ledAt)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A machine that was suspended finds that its time has passed, before it has made a request. Go's
// monotonic clock stands still meanwhile.
func TestContract06_SuspensionCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slept, counted time.Duration
		lost           bool
	}{
		"for longer than the lease lasts":  {DefaultRenewDeadline, DefaultRenewDeadline, true},
		"for shorter":                      {5 * time.Second, 5 * time.Second, false},
		"not at all: the clocks differ":    {minSuspension - 1, 0, false},
		"for long, and the lease is taken": {time.Hour, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				client := s.client("a")
				e := newTestElector(t, client)
				var slept atomic.Int64
				slept.Store(int64(42 * time.Minute)) // since the machine was started
				e.clock = newClock(func() time.Duration { return time.Duration(slept.Load()) })
				contexts := make(chan context.Context, 2)
				r := run(t, e, func(ctx context.Context) error {
					contexts <- ctx
					<-ctx.Done()
					<-time.After(time.Second) // so that it does not stand again at once
					return nil
				})
				pass(5 * time.Second)
				working := <-contexts
				held := e.term.current()
				requests := client.count()
				until := time.Until(e.Status().Until)
				slept.Add(int64(tt.slept))
				if got := held.Err() != nil; got != tt.lost {
					t.Errorf("after %s the leadership is lost: %v, want %v", tt.slept, got, tt.lost)
				}
				if got := working.Err() != nil; got != tt.lost {
					t.Errorf("after %s work is cancelled: %v, want %v", tt.slept, got, tt.lost)
				}
				if got := e.Status().State == StateLost; got != tt.lost {
					t.Errorf("after %s the status is %+v", tt.slept, e.Status())
				}
				if got := time.Until(e.Status().Until); !tt.lost && got != until-tt.counted {
					t.Errorf("after %s the lease is held for %s, want %s less than before, %s", tt.slept, got, tt.counted, until)
				}
				if client.count() != requests {
					t.Error("a request was made first")
				}
				pass(time.Minute)
				if got := e.Status(); got.State != StateLeading {
					t.Errorf("a minute later the status is %+v", got)
				}
				if err := r.stop(); err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// A process that is stopped between gaining the lease and calling work does not work under a lease
// that another has taken meanwhile.
func TestContract06_WorkDoesNotStartUnderAnExpiredLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		client := s.client("a")
		e := newTestElector(t, client)
		var passed atomic.Int64 // while the process is stopped
		e.clock = newClock(func() time.Duration { return time.Duration(passed.Load()) })
		client.after = func(ctx context.Context, verb string) error {
			if verb == "update" {
				passed.Store(int64(DefaultRenewDeadline)) // the answer was under way
			}
			return ctx.Err()
		}
		began := 0
		r := run(t, e, func(ctx context.Context) error {
			began++
			if len(s.writesBy("a")) < 2 { // taken a second time
				t.Error("work is called under the lease that has expired")
			}
			return untilDone(ctx)
		})
		pass(time.Minute)
		if got := e.Status(); began != 1 || got.State != StateLeading {
			t.Errorf("work was called %d times; the status is %+v", began, got)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// After an orderly release no write of the term is sent, whoever still has its context: the
// leadership has ended when the lease is released.
func TestContract06_NoWriteAfterARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		client := s.client("a")
		e := newTestElector(t, client)
		terms := make(chan *leadership.Term, 1)
		contexts := make(chan context.Context, 1)
		r := run(t, e, func(ctx context.Context) error {
			terms <- e.term.current()
			contexts <- ctx
			<-time.After(9 * time.Second)
			return nil
		})
		pass(time.Second)
		held, working := <-terms, <-contexts
		var atRelease atomic.Pointer[error]
		client.fail(func(ctx context.Context, verb string) error {
			if verb == "get" { // renewals update without it
				err := held.Err()
				atRelease.CompareAndSwap(nil, &err)
			}
			return ctx.Err()
		})
		if err := <-r.result; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if err := atRelease.Load(); err == nil || !errors.Is(*err, kube.ErrLeadershipLost) {
			t.Errorf("when the lease is released, the leadership's error is %v", err)
		}
		if working.Err() == nil || s.holder() != "" {
			t.Errorf("the work's context is %v, the holder %q", working.Err(), s.holder())
		}
	})
}

package leader

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// After a suspension of the machine, an expired lease is detected before any request. Go's monotonic clock does not
// include the suspension.
func TestContract06_SuspensionExpiresLease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slept, counted time.Duration
		lost           bool
	}{
		"for longer than the lease lasts":  {leadership.DefaultRenewDeadline, leadership.DefaultRenewDeadline, true},
		"for a shorter time":               {5 * time.Second, 5 * time.Second, false},
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
					<-time.After(time.Second) // the next term begins later
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
				if got := e.Status().state == stateLost; got != tt.lost {
					t.Errorf("after %s the status is %+v", tt.slept, e.Status())
				}
				if got := time.Until(e.Status().Until); !tt.lost && got != until-tt.counted {
					t.Errorf("after %s the lease is held for %s, want %s less than before, %s", tt.slept, got, tt.counted, until)
				}
				if client.count() != requests {
					t.Error("a request was made first")
				}
				pass(time.Minute)
				if got := e.Status(); got.state != stateLeading {
					t.Errorf("a minute later the status is %+v", got)
				}
				r.stopWithoutError(t)
			})
		})
	}
}

// A process continues after a pause that was longer than its lease, and the next renewal is due before anything else
// has detected the loss. It must not write the lease.
func TestExpiredLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e := newTestElector(t, s.client("a"))
		var passed atomic.Int64
		e.clock = newClock(func() time.Duration { return time.Duration(passed.Load()) })
		r := run(t, e, func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(time.Second) // the next term begins later
			return nil
		})
		pass(5 * time.Second)
		passed.Store(int64(leadership.DefaultRenewDeadline))
		renewed := s.last("a")
		pass(1500 * time.Millisecond) // one renewal is due
		if got := e.Status().state; got != stateLost || s.last("a") != renewed {
			t.Errorf("the state is %s, the last renewal at %s, want lost and %s", got, s.last("a").At, renewed.At)
		}
		r.stopWithoutError(t)
	})
}

// A process is stopped between the acquisition of the lease and the call of work, until the lease has expired. It must
// not call work in this term.
func TestContract06_WorkDoesNotStartWithExpiredLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		client := s.client("a")
		e := newTestElector(t, client)
		var passed atomic.Int64 // time for which the process is stopped
		e.clock = newClock(func() time.Duration { return time.Duration(passed.Load()) })
		client.after = func(ctx context.Context, verb string) error {
			if verb == "update" {
				passed.Store(int64(leadership.DefaultRenewDeadline)) // stopped before the response arrived
			}
			return ctx.Err()
		}
		calls := 0
		r := run(t, e, func(ctx context.Context) error {
			calls++
			if len(s.writesBy("a")) < 2 { // the second acquisition
				t.Error("work is called under the lease that has expired")
			}
			return untilDone(ctx)
		})
		pass(time.Minute)
		if got := e.Status(); calls != 1 || got.state != stateLeading {
			t.Errorf("work was called %d times; the status is %+v", calls, got)
		}
		r.stopWithoutError(t)
	})
}

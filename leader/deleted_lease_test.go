package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A leader detects at its next renewal that its lease was deleted, or stops at its deadline if it cannot reach the API
// server. No other process leads before that deadline.
func TestContract06_DeletedLeaseEndsLeadership(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]func(ctx context.Context, verb string) error{
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
					<-time.After(time.Hour) // no further term
					return nil
				})
				pass(time.Second)
				second := run(t, newTestElector(t, s.client("b")), func(ctx context.Context) error {
					secondAt = time.Since(s.start)
					return untilDone(ctx)
				})
				pass(time.Minute)
				deleted := time.Since(s.start)
				client.fail(failure)
				s.remove()
				pass(time.Minute)
				limit := leadership.DefaultRetryPeriod
				if failure != nil {
					limit = leadership.DefaultRenewDeadline
				}
				if lostAt == 0 || lostAt > deleted+limit {
					t.Errorf("the lease was deleted at %s, and lost at %s, want within %s", deleted, lostAt, limit)
				}
				if secondAt < deleted+leadership.DefaultLeaseDuration || secondAt > deleted+leadership.DefaultLeaseDuration+10*time.Second {
					t.Errorf("the lease was deleted at %s, and another leads at %s, want after a LeaseDuration", deleted, secondAt)
				}
				reason := "reason=\"the lease was deleted\""
				if failure != nil {
					reason = "reason=\"the lease was not renewed for 10s\""
				}
				if log.count("work cancelled") != 1 || log.count(reason) != 1 {
					t.Errorf("logged:\n%s", &log.buffer)
				}
				if s.last("a").Holder != "a" {
					t.Error("the leader created the lease that it had lost")
				}
				second.stopWithoutError(t)
				_ = first.stop()
			})
		})
	}
}

// For a candidate, a first installation looks the same as a lease that was deleted while another process leads.
func TestMissingLeaseHasNoLeaderForALeaseDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.remove()
		var log logs
		e := newTestElector(t, s.client("a"), log.into)
		r := run(t, e, untilDone)
		pass(leadership.DefaultLeaseDuration - 1)
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
		r.stopWithoutError(t)
	})
}

// The lease is acquired by another process and deleted again between two reads of a candidate, which has seen before
// that the lease is missing. The candidate must wait all the same.
func TestLeaseDeletedBetweenTwoReads(t *testing.T) {
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
		pass(leadership.DefaultLeaseDuration - time.Second)
		// Another candidate acquires the lease, and it is deleted at once.
		s.remove()
		deleted := time.Since(s.start)
		pass(time.Minute)
		if ledAt < deleted+leadership.DefaultLeaseDuration {
			t.Errorf("the lease was deleted at %s, and another process leads at %s, want after a LeaseDuration", deleted, ledAt)
		}
		r.stopWithoutError(t)
	})
}

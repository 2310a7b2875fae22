package leader

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// alone returns work that fails the test if two electors run it at once, and the number of electors that run it.
func alone(t *testing.T, s *server) (work func(ctx context.Context) error, active *atomic.Int32) {
	t.Helper()
	active = &atomic.Int32{}
	return func(ctx context.Context) error {
		if active.Add(1) > 1 {
			t.Errorf("two electors lead at %s", time.Since(s.start))
		}
		defer active.Add(-1)
		return untilDone(ctx)
	}, active
}

// Renewals within a second differ only in the fraction of renewTime, which client-go's comparison of records ignores. A
// candidate must wait a LeaseDuration after the last of them, not after the first.
func TestContract06_CandidateWaitStartsAtLastRenewal(t *testing.T) {
	t.Parallel()
	for name, renewals := range map[string]time.Duration{
		"one renewal": 150 * time.Millisecond, "several renewals": 950 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				short := func(c *Config) {
					c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 2*time.Second, 1900*time.Millisecond, 100*time.Millisecond
				}
				work, active := alone(t, s)
				first := s.client("a")
				a := run(t, newTestElector(t, first, short), work)
				pass(time.Millisecond)
				b := run(t, newTestElector(t, s.client("b"), short), work)
				pass(renewals)
				first.fail(hang)
				pass(10 * time.Second)
				if active.Load() != 1 || s.holder() != "b" {
					t.Errorf("%d electors lead, the holder is %q, want b", active.Load(), s.holder())
				}
				if err := errors.Join(a.stop(), b.stop()); err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// Another client shortens or removes leaseDurationSeconds while the leader cannot reach the API server. The leader
// continues until its deadline, so candidates must wait for their own LeaseDuration.
func TestContract06_EditedLeaseDurationDoesNotShortenWait(t *testing.T) {
	t.Parallel()
	one := int32(1)
	for name, seconds := range map[string]*int32{"one second": &one, "removed": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				work, active := alone(t, s)
				first := s.client("a")
				a := run(t, newTestElector(t, first), work)
				pass(time.Millisecond)
				b := run(t, newTestElector(t, s.client("b")), work)
				pass(5 * time.Second)
				first.fail(hang)
				s.edit(func(lease *coordinationv1.Lease) { lease.Spec.LeaseDurationSeconds = seconds })
				pass(time.Minute)
				if active.Load() != 1 || s.holder() != "b" {
					t.Errorf("%d electors lead, the holder is %q, want b", active.Load(), s.holder())
				}
				if err := errors.Join(a.stop(), b.stop()); err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// During a rolling update that shortens LeaseDuration, candidates must wait for the LeaseDuration of the holder.
func TestContract06_CandidateWaitsForLeaseDurationOfHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		work, active := alone(t, s)
		first := s.client("a")
		a := run(t, newTestElector(t, first, func(c *Config) {
			c.LeaseDuration, c.RenewDeadline = time.Minute, 50*time.Second
		}), work)
		pass(time.Second)
		b := run(t, newTestElector(t, s.client("b")), work)
		pass(9 * time.Second)
		first.fail(hang)
		pass(2 * time.Minute)
		if active.Load() != 1 || s.holder() != "b" {
			t.Errorf("%d electors lead, the holder is %q, want b", active.Load(), s.holder())
		}
		if waited := s.writesBy("b")[0].At - s.last("a").At; waited < time.Minute {
			t.Errorf("b acquired the lease %s after the last renewal of a, want at least a minute", waited)
		}
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// Candidates that start together make their attempts at different times.
func TestAttemptsOfCandidatesAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first := run(t, newTestElector(t, s.client("a")), untilDone)
		pass(time.Second)
		candidate := s.client("b")
		var attempts []time.Duration
		candidate.fail(func(context.Context, string) error {
			attempts = append(attempts, time.Since(s.start))
			return nil
		})
		second := run(t, newTestElector(t, candidate), untilDone)
		pass(10 * time.Minute)
		if err := errors.Join(second.stop(), first.stop()); err != nil {
			t.Errorf("Run returned %v", err)
		}
		shortest, longest := time.Hour, time.Duration(0)
		for i, at := range attempts[1:] {
			shortest, longest = min(shortest, at-attempts[i]), max(longest, at-attempts[i])
		}
		if shortest < leadership.DefaultRetryPeriod || longest > leadership.DefaultRetryPeriod*22/10 || longest-shortest < leadership.DefaultRetryPeriod {
			t.Errorf("%d attempts, %s to %s after one another, want 2s to 4.4s", len(attempts), shortest, longest)
		}
	})
}

// The API server rejects leaseTransitions below 0. A Lease with the largest number must not prevent candidates from
// leading.
func TestLargestLeaseTransitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.validate = func(lease *coordinationv1.Lease) error {
			if n := lease.Spec.LeaseTransitions; n != nil && *n < 0 {
				return apierrors.NewBadRequest("leaseTransitions must be greater than or equal to 0")
			}
			return nil
		}
		largest := int32(math.MaxInt32)
		s.edit(func(lease *coordinationv1.Lease) { lease.Spec.LeaseTransitions = &largest })
		e := newTestElector(t, s.client("a"))
		r := run(t, e, untilDone)
		pass(10 * time.Second)
		if s.holder() != "a" || e.Status().state != stateLeading {
			t.Errorf("the holder is %q, the status %+v, want a leader", s.holder(), e.Status())
		}
		if err := r.stop(); err != nil || s.holder() != "" {
			t.Errorf("Run returned %v, the holder is %q", err, s.holder())
		}
	})
}

// A renewal succeeds but its response is lost, and many more renewals fail because RetryPeriod is short. The Elector
// still recognizes its record.
func TestManyFailedRenewalsAfterLostResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		var log logs
		e := newTestElector(t, c, log.into, func(c *Config) { c.RetryPeriod = 100 * time.Millisecond })
		var terms atomic.Int32
		r := run(t, e, func(ctx context.Context) error {
			terms.Add(1)
			return untilDone(ctx)
		})
		pass(5 * time.Second)
		c.mu.Lock()
		lost := false
		c.after = func(ctx context.Context, verb string) error {
			if verb == "update" && !lost {
				lost = true
				c.before = refuse // all later requests
				return errors.New("connection reset by peer")
			}
			return ctx.Err()
		}
		c.mu.Unlock()
		pass(5 * time.Second)
		if !lost {
			t.Fatal("no response was lost")
		}
		c.fail(nil)
		pass(10 * time.Second)
		if terms.Load() != 1 || e.Status().state != stateLeading {
			t.Errorf("%d terms, the status is %+v, want one term:\n%s", terms.Load(), e.Status(), &log.buffer)
		}
		r.stopWithoutError(t)
	})
}

// etcd is restored from a backup with a record of an earlier term. The process that wrote it must not lead at once:
// another process leads, and detects the change at its next renewal.
func TestContract06_RestoredLeaseOfEarlierTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		work, active := alone(t, s)
		clients := []*client{s.client("a"), s.client("b")}
		a := run(t, newTestElector(t, clients[0]), work)
		pass(time.Second)
		b := run(t, newTestElector(t, clients[1]), work)
		pass(time.Second)
		clients[0].fail(hang)
		pass(time.Minute)
		backup := s.read() // b leads in it
		clients[0].fail(nil)
		clients[1].fail(hang)
		pass(time.Minute)
		clients[1].fail(nil)
		pass(10 * time.Second)
		if s.holder() != "a" || *backup.Spec.HolderIdentity != "b" {
			t.Fatalf("the holder is %q, and was %q before", s.holder(), *backup.Spec.HolderIdentity)
		}
		clients[0].fail(hang)
		s.restore(backup)
		pass(time.Minute)
		if active.Load() != 1 || s.holder() != "b" {
			t.Errorf("%d electors lead, the holder is %q, want b", active.Load(), s.holder())
		}
		clients[0].fail(nil)
		pass(10 * time.Second)
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

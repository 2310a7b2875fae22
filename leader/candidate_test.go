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
)

// alone returns work that fails the test when two electors do it at once, and how many do it now.
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

// Renewals within a second differ only in the fraction of renewTime, which client-go's comparison of records drops. A
// candidate must wait a LeaseDuration from the last of them, not from the first.
func TestContract06_CandidateCountsFromTheLastRenewal(t *testing.T) {
	t.Parallel()
	for name, renewals := range map[string]time.Duration{"one renewal": 150 * time.Millisecond, "several renewals": 950 * time.Millisecond} {
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

// Another client has shortened or removed leaseDurationSeconds while the leader cannot reach the API server. The leader
// goes on until its deadline, so candidates wait for their own LeaseDuration.
func TestContract06_EditedLeaseDurationDoesNotShortenTheWait(t *testing.T) {
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

// The API server refuses leaseTransitions below 0. A Lease with the largest number must not keep all candidates from
// leading for ever.
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
		if s.holder() != "a" || e.Status().State != StateLeading {
			t.Errorf("the holder is %q, the status %+v, want a leader", s.holder(), e.Status())
		}
		if err := r.stop(); err != nil || s.holder() != "" {
			t.Errorf("Run returned %v, the holder is %q", err, s.holder())
		}
	})
}

// Renewals can fail more often than an Elector remembers writes, when RetryPeriod is short. If one of them was done
// and its answer was lost, the lease is still this Elector's.
func TestManyFailedRenewalsAfterALostAnswer(t *testing.T) {
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
				c.before = refuse // from now on
				return errors.New("connection reset by peer")
			}
			return ctx.Err()
		}
		c.mu.Unlock()
		pass(5 * time.Second)
		if !lost {
			t.Fatal("no answer was lost")
		}
		c.fail(nil)
		pass(10 * time.Second)
		if terms.Load() != 1 || e.Status().State != StateLeading {
			t.Errorf("%d terms, the status is %+v, want one term:\n%s", terms.Load(), e.Status(), &log.buffer)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// An etcd that is restored from a backup brings back a record of an earlier term. The process that wrote it must not
// lead at once: another one leads, and notices at its next renewal.
func TestContract06_RestoredLeaseOfAnEarlierTerm(t *testing.T) {
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
		backup := s.read() // in which b leads
		clients[0].fail(nil)
		clients[1].fail(hang)
		pass(time.Minute)
		clients[1].fail(nil)
		pass(10 * time.Second)
		if s.holder() != "a" || *backup.Spec.HolderIdentity != "b" {
			t.Fatalf("the holder is %q, and before it was %q", s.holder(), *backup.Spec.HolderIdentity)
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

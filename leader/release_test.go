package leader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	name := func(holder string) func(*server) {
		return func(s *server) {
			s.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder })
		}
	}
	label := func(s *server) {
		s.edit(func(l *coordinationv1.Lease) { l.Labels = map[string]string{"seen": "yes"} })
	}
	for what, tt := range map[string]struct {
		edit    func(*server) // changes the lease after the last renewal
		between func(*server) // changes it between the read and the write of the release
		fail    func(context.Context, string) error
		holder  string // after the release
		took    time.Duration
	}{
		"ordinary":                            {},
		"of a lease that was labelled":        {edit: label},
		"of a lease that is being labelled":   {between: label},
		"of a lease with another holder":      {edit: name("thief"), holder: "thief"},
		"of a lease that gets another holder": {between: name("thief"), holder: "thief"},
		"without a response":                  {fail: hang, holder: "a", took: releaseTimeout},
		"unavailable until the timeout":       {fail: refuse, holder: "a", took: releaseTimeout},
		"forbidden until the timeout":         {fail: forbid("update"), holder: "a", took: releaseTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				c := s.client("a")
				var log logs
				r := run(t, newTestElector(t, c, log.into), untilDone)
				pass(5 * time.Second)
				if tt.edit != nil {
					tt.edit(s)
				}
				if tt.between != nil {
					c.fail(func(_ context.Context, verb string) error {
						if verb == "update" {
							c.fail(nil)
							tt.between(s)
						}
						return nil
					})
				} else {
					c.fail(tt.fail)
				}
				start := time.Now()
				r.stopWithoutError(t)
				if took := time.Since(start); took != tt.took {
					t.Errorf("Run took %s to return, want %s", took, tt.took)
				}
				if holder := s.holder(); holder != tt.holder {
					t.Errorf("the holder is %q, want %q", holder, tt.holder)
				}
				warnings := 0
				if tt.took > 0 {
					warnings = 1
				}
				if n := log.count("leadership not released"); n != warnings {
					t.Errorf("%d warnings about the release, want %d:\n%s", n, warnings, &log.buffer)
				}
			})
		})
	}
}

func TestReleaseIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		r := run(t, newTestElector(t, c), untilDone)
		pass(5 * time.Second)
		c.fail(func(ctx context.Context, verb string) error {
			c.fail(nil)
			return refuse(ctx, verb)
		})
		r.stopWithoutError(t)
		if diff := cmp.Diff(write{At: 6 * time.Second, By: "a"}, s.last("a")); diff != "" {
			t.Errorf("the release differs (-want +got):\n%s", diff)
		}
	})
}

// Run ends while the write that acquires the lease is in flight. The lease must be released, because no work runs under
// it.
func TestAcquisitionWithoutResponseIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		c.after = func(ctx context.Context, verb string) error {
			if verb == "update" && s.holder() == "a" {
				return hang(ctx, verb)
			}
			return ctx.Err()
		}
		var log logs
		r := run(t, newTestElector(t, c, log.into), func(context.Context) error {
			t.Error("work is called without leadership")
			return nil
		})
		pass(time.Second)
		if holder := s.holder(); holder != "a" {
			t.Fatalf("the lease is held by %q", holder)
		}
		r.stopWithoutError(t)
		if holder := s.holder(); holder != "" {
			t.Errorf("the lease is held by %q, want it released", holder)
		}
		if n := log.count("level=WARN"); n > 0 {
			t.Errorf("an ordinary stop is logged as a failure:\n%s", &log.buffer)
		}
	})
}

// After a failed acquisition, a read shows that another process holds the lease. Then a release is not attempted.
func TestNoReleaseAfterFailedAcquisition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := s.client("b")
		b.fail(forbid("update"))
		e := newTestElector(t, b)
		second := run(t, e, untilDone)
		pass(time.Second)
		first := run(t, newTestElector(t, s.client("a")), untilDone)
		pass(time.Second)
		b.fail(nil)
		pass(9 * time.Second)
		if err := e.Ready(); err != nil {
			t.Errorf("not ready while another leads: %v", err)
		}
		b.fail(hang)
		second.stopAtOnce(t)
		first.stopWithoutError(t)
	})
}

// TestNoRenewalDuringRelease checks that renewals have ended before the lease is released: a renewal would acquire
// the lease again while the response to the release is awaited.
func TestNoRenewalDuringRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		var delayed atomic.Bool
		c.after = func(ctx context.Context, verb string) error {
			if verb == "update" && s.holder() == "" {
				if !delayed.Swap(true) {
					time.Sleep(2 * time.Second)
				}
			}
			return ctx.Err()
		}
		r := run(t, newTestElector(t, c, func(c *Config) { c.RetryPeriod = 100 * time.Millisecond }), untilDone)
		pass(5050 * time.Millisecond)
		r.stopWithoutError(t)
		var after []write
		s.mu.Lock()
		for _, w := range s.writes {
			if w.At > 5050*time.Millisecond || w.At == 5050*time.Millisecond && w.Holder != "a" {
				after = append(after, w)
			}
		}
		s.mu.Unlock()
		if diff := cmp.Diff([]write{{At: 5050 * time.Millisecond, By: "a"}}, after); diff != "" {
			t.Errorf("writes since the end of work (-want +got):\n%s", diff)
		}
	})
}

// After a release no write of the term is sent: the leadership ends before the lease is released.
func TestContract06_NoWriteAfterRelease(t *testing.T) {
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

// TestContract05_LeaseIsKeptWhileWorkContinues checks that a lease is neither released nor acquired again when work
// returns although a handler of a controller still runs.
func TestContract05_LeaseIsKeptWhileWorkContinues(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r := run(t, newTestElector(t, s.client("a")), func(ctx context.Context) error {
					<-ctx.Done()
					return errors.Join(fmt.Errorf("controller x: %w", leadership.ErrStillRunning), ctx.Err())
				})
				pass(5 * time.Second)
				if lost {
					other := "b"
					s.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &other })
					pass(time.Minute)
				} else {
					r.cancel()
				}
				if err := <-r.result; !errors.Is(err, leadership.ErrStillRunning) {
					t.Errorf("Run returned %v, want the error of work", err)
				}
				for _, w := range s.writesBy("a") {
					if w.Holder != "a" || w.At > 5*time.Second {
						t.Errorf("the lease was written: %+v", w)
					}
				}
			})
		})
	}
}

// TestGoexitOfWorkEndsElector checks that runtime.Goexit in work, which t.FailNow calls, leaves nothing behind: the
// context of work is cancelled, the Elector has stopped without a release, and can run again.
func TestGoexitOfWorkEndsElector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e := newTestElector(t, s.client("a"))
		var lost atomic.Bool
		ended := make(chan struct{})
		ctx := t.Context()
		go func() { // waited for below
			defer close(ended)
			_ = e.Run(ctx, func(ctx context.Context) error {
				context.AfterFunc(ctx, func() { lost.Store(errors.Is(context.Cause(ctx), kube.ErrLeadershipLost)) })
				runtime.Goexit()
				return nil
			})
		}()
		<-ended
		synctest.Wait()
		if e.Status().state != stateStopped || !lost.Load() {
			t.Errorf("the state is %s, the context of work is cancelled: %t", e.Status().state, lost.Load())
		}
		if writes := s.writesBy("a"); len(writes) != 1 || writes[0].Holder != "a" {
			t.Errorf("the lease was written: %+v", writes)
		}
		r := run(t, e, untilDone)
		pass(time.Minute)
		if state := e.Status().state; state != stateLeading {
			t.Errorf("in the second run the state is %s", state)
		}
		r.stopWithoutError(t)
	})
}

package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// An Elector is what the controller package calls a LeaderElector; leader does not import it.
var _ interface {
	Run(ctx context.Context, work func(ctx context.Context) error) error
} = (*Elector)(nil)

func TestContract05_LeaseReleasedAfterWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var cause error
		var ended time.Duration
		r := run(t, newTestElector(t, s.client("a")), func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			select {
			case <-time.After(20 * time.Second):
			case <-leadership.Lost(ctx):
				t.Error("leadership counts as lost after an ordinary stop")
			}
			ended = time.Since(s.start)
			return nil
		})
		pass(5 * time.Second)
		r.stopWithoutError(t)
		if !errors.Is(cause, context.Canceled) || errors.Is(cause, kube.ErrLeadershipLost) {
			t.Errorf("the cause of an ordinary stop is %v, want context.Canceled", cause)
		}
		if want := 25 * time.Second; ended != want {
			t.Fatalf("work ended at %s, want %s", ended, want)
		}
		// Acquired at 0, renewed every 2 s until work has ended, then released.
		var want []write
		for at := time.Duration(0); at <= 24*time.Second; at += leadership.DefaultRetryPeriod {
			want = append(want, write{At: at, By: "a", Holder: "a"})
		}
		want = append(want, write{At: 25 * time.Second, By: "a", Holder: ""})
		if diff := cmp.Diff(want, s.writesBy("a")); diff != "" {
			t.Errorf("writes to the lease differ (-want +got):\n%s", diff)
		}
	})
}

func TestContract06_LostLeadershipCancelsWork(t *testing.T) {
	t.Parallel()
	setHolder := func(holder string) func(s *server, _ *client) {
		return func(s *server, _ *client) {
			s.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder })
		}
	}
	for name, tt := range map[string]struct {
		disturb func(s *server, c *client)
		within  time.Duration // from the last renewal until work is cancelled
	}{
		"requests are refused":          {func(_ *server, c *client) { c.fail(refuse) }, leadership.DefaultRenewDeadline},
		"requests get no response":      {func(_ *server, c *client) { c.fail(hang) }, leadership.DefaultRenewDeadline},
		"updates are forbidden":         {func(_ *server, c *client) { c.fail(forbid("update")) }, leadership.DefaultRenewDeadline},
		"another process has the lease": {setHolder("thief"), leadership.DefaultRetryPeriod},
		"the lease has no holder":       {setHolder(""), leadership.DefaultRetryPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				c := s.client("a")
				var log logs
				e := newTestElector(t, c, log.into)
				contexts := make(chan context.Context, 1)
				var cancelled time.Duration
				r := run(t, e, func(ctx context.Context) error {
					contexts <- ctx
					<-ctx.Done()
					cancelled = time.Since(s.start)
					time.Sleep(7 * time.Second) // ends its work
					return ctx.Err()
				})
				pass(5 * time.Second)
				renewed := s.last("a")
				tt.disturb(s, c)

				working := <-contexts
				<-working.Done()
				synctest.Wait()
				if n := log.count("leadership lost, work cancelled"); n != 1 {
					t.Errorf("the loss is logged %d times at once, want once:\n%s", n, &log.buffer)
				}
				requests := c.count()
				if cause := context.Cause(working); !errors.Is(cause, kube.ErrLeadershipLost) {
					t.Errorf("the cause is %v, want ErrLeadershipLost", cause)
				}
				select {
				case <-leadership.Lost(working):
				default:
					t.Error("leadership.Lost is not closed")
				}
				if took := cancelled - renewed.At; took <= 0 || took > tt.within {
					t.Errorf("work was cancelled %s after the last renewal, want at most %s", took, tt.within)
				}
				if got := e.Status(); got.state != stateLost || !got.Until.IsZero() || got.ready() == nil {
					t.Errorf("while work ends, the status is %+v", got)
				}
				pass(6 * time.Second)
				if n := c.count() - requests; n > 0 {
					t.Errorf("%d requests were made after the loss, while work was ending", n)
				}
				if diff := cmp.Diff(renewed, s.last("a")); diff != "" {
					t.Errorf("the lease was written after the loss (-want +got):\n%s", diff)
				}
				c.fail(nil)
				r.stopWithoutError(t)
			})
		})
	}
}

func TestElectorLeadsAgainAfterLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		var log logs
		e := newTestElector(t, c, log.into)
		terms, active := 0, 0
		r := run(t, e, func(ctx context.Context) error {
			terms++
			active++
			if active > 1 {
				t.Error("work is called while it runs")
			}
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			active--
			return errors.New("interrupted")
		})
		pass(time.Second)
		c.fail(hang)
		pass(time.Minute)
		if got := e.Status(); got.state != stateStandby || got.Err == nil {
			t.Errorf("without an API server the status is %+v", got)
		}
		c.fail(nil)
		pass(10 * time.Second)
		if got := e.Status(); got.state != stateLeading || got.Err != nil {
			t.Errorf("with the API server back the status is %+v", got)
		}
		if terms != 2 {
			t.Errorf("work was called %d times, want 2", terms)
		}
		if n := log.count("interrupted"); n != 1 {
			t.Errorf("the error of work that was cancelled by a loss is logged %d times, want once:\n%s", n, &log.buffer)
		}
		if err := r.stop(); err == nil || err.Error() != "interrupted" {
			t.Errorf("Run returned %v, want the error of work", err)
		}
		if holder := s.holder(); holder != "" {
			t.Errorf("the lease is held by %q, want it released", holder)
		}
	})
}

func TestTakeover(t *testing.T) {
	t.Parallel()
	const retry = leadership.DefaultRetryPeriod * 22 / 10 // with jitter
	for name, tt := range map[string]struct {
		crash bool
		// From the last write of the first leader. After a crash, a candidate sees that write at one attempt, and the
		// expiration at a later one.
		atLeast, atMost time.Duration
	}{
		"after a release": {atMost: retry},
		"after a crash":   {crash: true, atLeast: leadership.DefaultLeaseDuration, atMost: leadership.DefaultLeaseDuration + 2*retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				a, b := s.client("a"), s.client("b")
				first := run(t, newTestElector(t, a), untilDone)
				pass(time.Second)
				second := newTestElector(t, b)
				var gained time.Duration
				secondRun := run(t, second, func(ctx context.Context) error {
					gained = time.Since(s.start)
					return untilDone(ctx)
				})
				pass(30 * time.Second)
				if got := second.Status(); got.state != stateStandby || got.Leader != "a" || got.ready() != nil {
					t.Errorf("in standby, the status is %+v", got)
				}
				if tt.crash {
					a.fail(hang)
				}
				first.stopWithoutError(t)
				pass(30 * time.Second)
				if took := gained - s.last("a").At; took < tt.atLeast || took > tt.atMost {
					t.Errorf("the second elector led %s after the last write of the first, want %s to %s", took, tt.atLeast, tt.atMost)
				}
				if got := second.Status(); got.state != stateLeading || got.Leader != "b" {
					t.Errorf("after taking over, the status is %+v", got)
				}
				secondRun.stopWithoutError(t)
			})
		})
	}
}

func TestRunReturnsErrorOfWork(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errors.New("no such kind"), fmt.Errorf("wrapped: %w", context.Canceled)} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				e := newTestElector(t, s.client("a"))
				r := run(t, e, func(context.Context) error {
					time.Sleep(7 * time.Second)
					return want
				})
				if got := <-r.result; !errors.Is(got, want) {
					t.Errorf("Run returned %v, want %v", got, want)
				}
				if diff := cmp.Diff(write{At: 7 * time.Second, By: "a"}, s.last("a")); diff != "" {
					t.Errorf("the release differs (-want +got):\n%s", diff)
				}
				if got := e.Status(); got.state != stateStopped || got.Leader != "" || got.ready() == nil {
					t.Errorf("afterwards the status is %+v", got)
				}
			})
		})
	}
}

func TestRunEndsInStandby(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]func(context.Context, string) error{
		"requests succeed":         nil,
		"requests get no response": hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				first := run(t, newTestElector(t, s.client("a")), untilDone)
				pass(time.Second)
				b := s.client("b")
				b.fail(failure)
				second := run(t, newTestElector(t, b), func(context.Context) error {
					t.Error("work is called without leadership")
					return nil
				})
				pass(9 * time.Second)
				second.stopAtOnce(t)
				if holder := s.holder(); holder != "a" {
					t.Errorf("the lease is held by %q, want the leader, a", holder)
				}
				first.stopWithoutError(t)
			})
		})
	}
}

func TestLossDuringDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		var cause error
		r := run(t, newTestElector(t, c), func(ctx context.Context) error {
			<-ctx.Done()
			<-leadership.Lost(ctx) // a drain that does not end
			cause = context.Cause(ctx)
			return kube.ErrLeadershipLost
		})
		pass(5 * time.Second)
		c.fail(refuse)
		renewed := s.last("a")
		r.stopWithoutError(t)
		if took := time.Since(s.start) - renewed.At; took != leadership.DefaultRenewDeadline {
			t.Errorf("leadership was lost %s after the last renewal, want %s", took, leadership.DefaultRenewDeadline)
		}
		if !errors.Is(cause, context.Canceled) {
			t.Errorf("the cause is %v, want that of the stop, which was first", cause)
		}
		if diff := cmp.Diff(renewed, s.last("a")); diff != "" {
			t.Errorf("the lease was written after the loss (-want +got):\n%s", diff)
		}
	})
}

func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e := newTestElector(t, s.client("a"))
		r := run(t, e, untilDone)
		pass(time.Second)
		if err := e.Run(t.Context(), untilDone); err == nil {
			t.Error("a second Run is not rejected")
		}
		r.stopWithoutError(t)
		second := run(t, e, untilDone)
		pass(time.Second)
		if got := e.Status().state; got != stateLeading {
			t.Errorf("after a second Run, the state is %s", got)
		}
		second.stopWithoutError(t)
		if err := e.Run(t.Context(), nil); err == nil {
			t.Error("a Run without work is not rejected")
		}
	})
}

func TestPanicOfWorkDoesNotReleaseLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e := newTestElector(t, s.client("a"))
		contexts, begun := make(chan context.Context, 1), time.Now()
		value := panicOf(func() {
			_ = e.Run(t.Context(), func(ctx context.Context) error {
				contexts <- ctx
				panic("oops")
			})
		})
		if value != "oops" {
			t.Errorf("Run panics with %v, want work's panic", value)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("the panic was delayed by %s: goroutines of work continued meanwhile", took)
		}
		if cause := context.Cause(<-contexts); !errors.Is(cause, kube.ErrLeadershipLost) {
			t.Errorf("goroutines of work see the cause %v, want ErrLeadershipLost", cause)
		}
		if holder := s.holder(); holder != "a" {
			t.Errorf("the lease is held by %q: it was released although goroutines of work may continue", holder)
		}
		if got := e.Status().state; got != stateStopped {
			t.Errorf("the state is %s", got)
		}
	})
}

func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// A nested election would hide the loss of the outer lease from the inner work.
func TestNestedElectionIsRejected(t *testing.T) {
	t.Parallel()
	cluster := connect(t, newServer().client("a"))
	elector, err := New(Config{Cluster: cluster, Namespace: "ns", Name: "inner", Identity: "a"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := leadership.With(t.Context(), leadership.New(nil, time.Hour))
	defer cancel()
	err = elector.Run(ctx, func(context.Context) error { t.Error("work is called"); return nil })
	if err == nil || !strings.Contains(err.Error(), "another election") {
		t.Errorf("Run: %v", err)
	}
}

// A leader keeps its lease when writes are switched off and limited: otherwise another replica would lead, and write.
func TestLimitsOfWritesDoNotEndLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		cluster := connect(t, s.client("a"))
		cluster.SetReadOnly(true)
		cluster.SetWriteLimit(0.001)
		e := newTestElector(t, s.client("a"), func(c *Config) { c.Cluster = cluster })
		r := run(t, e, untilDone)
		pass(time.Minute)
		if status := e.Status(); status.state != stateLeading || status.Err != nil {
			t.Errorf("it is %s: %v", status.state, status.Err)
		}
		if err := r.stop(); err != nil || s.holder() != "" {
			t.Errorf("Run returned %v, the holder is %q", err, s.holder())
		}
	})
}

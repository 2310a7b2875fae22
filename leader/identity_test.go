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

// Two processes have the same identity by mistake, or because a Pod of a StatefulSet runs twice. Only one may lead.
func TestContract06_OneOfTwoElectorsWithOneIdentityLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		clients := []*client{s.client("a"), s.client("a")}
		var log [2]logs
		var leads [2]int
		active := 0
		var all []*running
		for i, c := range clients {
			all = append(all, run(t, newTestElector(t, c, log[i].into), func(ctx context.Context) error {
				leads[i]++
				if active++; active > 1 {
					t.Error("both electors lead")
				}
				<-ctx.Done()
				if i == 0 && !errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
					t.Errorf("the cause is %v, want ErrLeadershipLost", context.Cause(ctx))
				}
				active--
				return nil
			}))
			pass(5 * time.Second)
		}
		pass(5 * time.Minute)
		if leads != [2]int{1, 0} {
			t.Errorf("the electors led %v times, want the first one only", leads)
		}
		const warning = "lease held by another process with the same identity"
		if log[0].count(warning) != 0 || log[1].count(warning) != 1 {
			t.Errorf("logged:\n%s%s", &log[0].buffer, &log[1].buffer)
		}
		clients[0].fail(hang)
		pass(leadership.DefaultRenewDeadline + leadership.DefaultLeaseDuration)
		clients[0].fail(nil)
		pass(time.Minute)
		if leads != [2]int{1, 1} {
			t.Errorf("the first one could not renew the lease, and the electors led %v times, want each once", leads)
		}
		// The first one is in standby, and does not write the lease when it ends.
		all[0].stopWithoutError(t)
		if s.holder() != "a" || active != 1 {
			t.Errorf("the holder is %q, and %d electors lead, after the one in standby has ended", s.holder(), active)
		}
		all[1].stopWithoutError(t)
		if s.holder() != "" {
			t.Errorf("the holder is %q at the end", s.holder())
		}
	})
}

// A killed process may have left writes in flight. A process that follows it with the same identity must wait, as any
// other would.
func TestRestartAfterCrashWithSameIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		killed := s.client("a")
		first := run(t, newTestElector(t, killed), untilDone)
		pass(5 * time.Second)
		killed.fail(hang)
		crashed := time.Since(s.start)
		var led time.Duration
		e := newTestElector(t, s.client("a"))
		second := run(t, e, func(ctx context.Context) error {
			led = time.Since(s.start)
			return untilDone(ctx)
		})
		pass(time.Second)
		if err := e.Ready(); err != nil {
			t.Errorf("while it waits it is not ready: %v", err)
		}
		pass(time.Minute)
		if led < crashed+leadership.DefaultLeaseDuration || led > crashed+leadership.DefaultLeaseDuration+5*time.Second {
			t.Errorf("it leads at %s, after a crash at %s, want after a LeaseDuration", led, crashed)
		}
		second.stopWithoutError(t)
		_ = first.stop()
	})
}

// If a renewal succeeds but its response is lost, the leader still recognizes its record.
func TestLostResponsesOfRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		var log logs
		e := newTestElector(t, c, log.into)
		terms := 0
		r := run(t, e, func(ctx context.Context) error {
			terms++
			return untilDone(ctx)
		})
		pass(5 * time.Second)
		for range 20 {
			lost := 0
			c.mu.Lock()
			c.after = func(ctx context.Context, verb string) error {
				if verb == "update" && lost < 2 {
					lost++
					return errors.New("connection reset by peer")
				}
				return ctx.Err()
			}
			c.mu.Unlock()
			pass(9 * time.Second)
			if lost != 2 {
				t.Fatalf("%d responses were lost, want 2", lost)
			}
		}
		if terms != 1 || e.Status().state != stateLeading {
			t.Errorf("%d terms, the status is %+v, want one term:\n%s", terms, e.Status(), &log.buffer)
		}
		r.stopWithoutError(t)
		if s.holder() != "" {
			t.Errorf("the holder is %q at the end", s.holder())
		}
	})
}

package leader

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

func TestStatusOfLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		// Each renewal takes 300 ms, which must not extend leadership.
		c.after = func(ctx context.Context, verb string) error {
			if verb == "update" {
				time.Sleep(300 * time.Millisecond)
			}
			return ctx.Err()
		}
		e := newTestElector(t, c)
		if got := e.Status(); got.state != stateStopped || got.ready() == nil {
			t.Errorf("before Run the status is %+v", got)
		}
		r := run(t, e, untilDone)
		pass(4 * time.Second)
		want := Status{
			Lease: "prod/printer", Identity: "a", Leading: true, state: stateLeading, Since: s.start.Add(300 * time.Millisecond), Leader: "a",
			Until: s.start.Add(s.last("a").At + leadership.DefaultRenewDeadline),
		}
		if diff := cmp.Diff(want, e.Status(), cmp.AllowUnexported(Status{})); diff != "" {
			t.Errorf("status differs (-want +got):\n%s", diff)
		}
		if err := e.Ready(); err != nil {
			t.Errorf("a leader is not ready: %v", err)
		}
		c.fail(refuse)
		pass(3 * time.Second)
		if got := e.Status(); got.Err == nil || got.ready() != nil {
			t.Errorf("a leader whose renewals fail has the status %+v", got)
		}
		since := e.Status().ErrSince
		if ago := time.Since(since); ago <= 0 || ago > 3*time.Second {
			t.Errorf("after 3 s of failures, ErrSince is %s ago", ago)
		}
		pass(2 * time.Second)
		if got := e.Status(); got.Err == nil || !got.ErrSince.Equal(since) {
			t.Errorf("after further failures, ErrSince is %s, want the first failure at %s", got.ErrSince, since)
		}
		c.fail(nil)
		pass(3 * time.Second)
		if got := e.Status(); got.Err != nil || !got.ErrSince.IsZero() {
			t.Errorf("after a renewal the status is %+v", got)
		}
		r.stopWithoutError(t)
	})
}

func TestForbiddenLeaseIsReported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verb string
		dead bool // a dead process holds the lease
	}{
		"get":                                   {verb: "get"},
		"create":                                {verb: "create"},
		"update of the lease of a dead process": {verb: "update", dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				if tt.dead {
					acquireAndDie(t, s, "dead")
				}
				if tt.verb == "create" {
					s.remove()
				}
				c := s.client("a")
				c.fail(forbid(tt.verb))
				var log logs
				e := newTestElector(t, c, log.into)
				r := run(t, e, untilDone)
				pass(time.Minute)
				got := e.Status()
				for _, want := range []string{
					tt.verb + " lease prod/printer", `User "robot" cannot ` + tt.verb, "Role", "namespace prod",
				} {
					if err := got.ready(); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Ready returned %v, want %q in it", err, want)
					}
				}
				if !apierrors.IsForbidden(got.Err) {
					t.Errorf("Err is %v, want it to wrap the error of the API server", got.Err)
				}
				if n := log.count("level=WARN"); n != 1 {
					t.Errorf("logged %d warnings in a minute, want 1:\n%s", n, &log.buffer)
				}
				c.fail(nil)
				pass(leadership.DefaultLeaseDuration + 10*time.Second) // a missing lease must expire first
				if got := e.Status(); got.state != stateLeading || got.Err != nil || got.ready() != nil {
					t.Errorf("after it is allowed, the status is %+v", got)
				}
				r.stopWithoutError(t)
			})
		})
	}
}

// acquireAndDie makes a process acquire the lease and die.
func acquireAndDie(t *testing.T, s *server, name string) {
	t.Helper()
	c := s.client(name)
	r := run(t, newTestElector(t, c), untilDone)
	pass(time.Second)
	c.fail(hang)
	r.stopWithoutError(t)
}

func TestStandbyIsReadyAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first := run(t, newTestElector(t, s.client("a")), untilDone)
		pass(time.Second)
		b := s.client("b")
		b.fail(refuse)
		e := newTestElector(t, b)
		second := run(t, e, untilDone)
		pass(10 * time.Second)
		if e.Ready() == nil {
			t.Error("ready without a response of the API server")
		}
		b.fail(nil)
		pass(5 * time.Second)
		if err := e.Ready(); err != nil {
			t.Errorf("not ready while another leads: %v", err)
		}
		for _, r := range []*running{first, second} {
			r.stopWithoutError(t)
		}
	})
}

// A standby is ready when it can read the lease of a dead process, before that lease expires.
func TestStandbyIsReadyBeforeLeaseOfDeadLeaderExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		acquireAndDie(t, s, "dead")
		b := s.client("b")
		e := newTestElector(t, b)
		r := run(t, e, untilDone)
		pass(time.Second)
		b.fail(refuse)
		pass(5 * time.Second)
		if e.Ready() == nil {
			t.Error("ready without a response of the API server")
		}
		b.fail(nil)
		pass(5 * time.Second)
		if got := e.Status(); got.ready() != nil || got.state != stateStandby || got.Leader != "dead" {
			t.Errorf("before the lease expires, the status is %+v", got)
		}
		r.stopWithoutError(t)
	})
}

func TestLabelsAreMerged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var log logs
		e := newTestElector(t, s.client("a"), log.into, func(c *Config) { c.Labels = map[string]string{"app": "printer"} })
		r := run(t, e, untilDone)
		pass(time.Second)
		if diff := cmp.Diff(map[string]string{"app": "printer"}, s.read().Labels); diff != "" {
			t.Errorf("labels of an acquired lease differ (-want +got):\n%s", diff)
		}
		s.edit(func(l *coordinationv1.Lease) { l.Labels = map[string]string{"app": "other", "team": "x"} })
		pass(3 * time.Second)
		if diff := cmp.Diff(map[string]string{"app": "printer", "team": "x"}, s.read().Labels); diff != "" {
			t.Errorf("labels after a renewal differ (-want +got):\n%s", diff)
		}
		if log.count("level=WARN") > 0 {
			t.Errorf("a conflict, which the next read resolves, is logged:\n%s", &log.buffer)
		}
		r.stopWithoutError(t)
	})
}

// readiness is the readiness of one controller of a group.
type readiness struct{ err error }

func (r readiness) Ready() error { return r.err }

func TestReadyWith(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first, second := newTestElector(t, s.client("a")), newTestElector(t, s.client("b"))
		stopped := readiness{errors.New("it is stopped")}
		if first.ReadyWith(readiness{}) == nil {
			t.Error("an elector that does not run is ready")
		}
		leading := run(t, first, untilDone)
		pass(time.Second)
		standby := run(t, second, untilDone)
		pass(10 * time.Second)
		if err := second.ReadyWith(stopped, readiness{}); err != nil {
			t.Errorf("a standby is not ready: %v", err)
		}
		if err := first.ReadyWith(readiness{}, stopped); !errors.Is(err, stopped.err) {
			t.Errorf("a leader with a controller that is not ready: %v", err)
		}
		if err := first.ReadyWith(readiness{}); err != nil {
			t.Errorf("a leader is not ready: %v", err)
		}
		for _, r := range []*running{standby, leading} {
			r.stopWithoutError(t)
		}
	})
}

// statusHandler is a log handler that calls Status for each record.
type statusHandler struct {
	slog.Handler

	elector *Elector
	records *atomic.Int32
}

func (h statusHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h statusHandler) Handle(context.Context, slog.Record) error {
	h.records.Add(1)
	_ = h.elector.Status()
	return nil
}

// A log handler that calls Status must not block.
func TestLogHandlerMayCallStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		e := newTestElector(t, c)
		var records atomic.Int32
		e.logger = slog.New(statusHandler{Handler: slog.DiscardHandler, elector: e, records: &records})
		r := run(t, e, untilDone)
		pass(time.Second)
		c.fail(refuse)
		pass(30 * time.Second)
		c.fail(nil)
		pass(10 * time.Second)
		r.stopWithoutError(t)
		// Gained, update failed, get failed, lost, succeeds again, gained, released.
		if n := records.Load(); n != 7 {
			t.Errorf("%d records, want 7", n)
		}
	})
}

// TestStatusHasNoErrorAfterRun checks that the failures of one Run are not shown after it, and in the next one.
func TestStatusHasNoErrorAfterRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verb   string
		change func(*Config)
	}{
		"lease": {"get", func(*Config) {}},
		"fence": {"probe", fenced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				c := s.client("a")
				c.fail(forbid(tt.verb))
				e := newTestElector(t, c, tt.change)
				r := run(t, e, untilDone)
				pass(10 * time.Second)
				if e.Status().Err == nil {
					t.Error("no error before the end")
				}
				r.stopWithoutError(t)
				if status := e.Status(); status.Err != nil || !status.ErrSince.IsZero() || status.state != stateStopped {
					t.Errorf("after the end: %s, %v since %s", status.state, status.Err, status.ErrSince)
				}
			})
		})
	}
}

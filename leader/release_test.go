package leader

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
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
		// edit changes the lease after the last renewal; between, between the release's
		// read and its write.
		edit, between func(*server)
		fail          func(context.Context, string) error
		// holder is whom the lease names afterwards.
		holder string
		took   time.Duration
	}{
		"an ordinary one":                    {},
		"of a lease that was labelled":       {edit: label},
		"of a lease that is being labelled":  {between: label},
		"of a lease that was taken":          {edit: name("thief"), holder: "thief"},
		"of a lease that is being taken":     {between: name("thief"), holder: "thief"},
		"without an answer":                  {fail: hang, holder: "a", took: releaseTimeout},
		"refused until it is too late":       {fail: refuse, holder: "a", took: releaseTimeout},
		"that is forbidden until it is late": {fail: forbid("update"), holder: "a", took: releaseTimeout},
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
				if err := r.stop(); err != nil {
					t.Errorf("Run returned %v", err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
				if holder := s.holder(); holder != tt.holder {
					t.Errorf("the lease names %q, want %q", holder, tt.holder)
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

func TestReleaseIsTriedAgain(t *testing.T) {
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
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if diff := cmp.Diff(write{At: 6 * time.Second, By: "a"}, s.last("a")); diff != "" {
			t.Errorf("the release differs (-want +got):\n%s", diff)
		}
	})
}

// Run may end while the write that gains the lease is on its way. Nobody ever works under
// that lease; it must not keep others from working either.
func TestUnansweredAcquisitionIsReleased(t *testing.T) {
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
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if holder := s.holder(); holder != "" {
			t.Errorf("the lease is held by %q, want it released", holder)
		}
		if n := log.count("level=WARN"); n > 0 {
			t.Errorf("an ordinary stop is logged as trouble:\n%s", &log.buffer)
		}
	})
}

// Once the lease has been seen to be another's, there is nothing to release.
func TestFailedAcquisitionIsForgottenWhenAnotherLeads(t *testing.T) {
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
		start := time.Now()
		if err := second.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("Run took %s to return", took)
		}
		if err := first.stop(); err != nil {
			t.Errorf("the leader's Run returned %v", err)
		}
	})
}

// One request that is never answered must not cost leadership.
func TestOneHungRenewalIsSurvived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		r := run(t, newTestElector(t, c), func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-leadership.Lost(ctx):
				t.Error("leadership was lost")
			}
			return nil
		})
		pass(5 * time.Second)
		c.fail(func(ctx context.Context, verb string) error {
			c.fail(nil)
			return hang(ctx, verb)
		})
		pass(time.Minute)
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// asking is a log handler that looks at the Elector whose records it gets.
type asking struct {
	slog.Handler

	elector *Elector
	records *atomic.Int32
}

func (a asking) Enabled(context.Context, slog.Level) bool { return true }

func (a asking) Handle(context.Context, slog.Record) error {
	a.records.Add(1)
	_ = a.elector.Status()
	return nil
}

// A handler that shows the status with each record must not wait for ever.
func TestLogHandlerMayAskForTheStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		e := newTestElector(t, c)
		var records atomic.Int32
		e.logger = slog.New(asking{Handler: slog.DiscardHandler, elector: e, records: &records})
		r := run(t, e, untilDone)
		pass(time.Second)
		c.fail(refuse)
		pass(30 * time.Second)
		c.fail(nil)
		pass(10 * time.Second)
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		// Gained, update and get fail, lost, reached again, gained, released.
		if n := records.Load(); n != 7 {
			t.Errorf("%d records, want 7", n)
		}
	})
}

package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// hostile is a Runner that does not do what it should.
type hostile struct {
	random  func(n int) int
	group   Group
	manager *running
	running *atomic.Int32 // instances of this Runner
	work    *atomic.Int32 // Runners of LeaderOnly
	t       *testing.T
}

func (h *hostile) Run(ctx context.Context) error {
	if h.running.Add(1) != 1 {
		h.t.Error("a runnable runs twice")
	}
	defer h.running.Add(-1)
	if h.group == LeaderOnly {
		h.work.Add(1)
		defer h.work.Add(-1)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(h.random(40)) * time.Second):
	}
	switch h.random(8) {
	case 0:
		panic("late")
	case 1:
		return errBroken
	case 2:
		return fmt.Errorf("wrapped: %w", context.Cause(ctx))
	case 3:
		<-ctx.Done()
		time.Sleep(time.Duration(h.random(8)) * time.Second) // ignores the end of its context
		return kube.ErrLeadershipLost
	case 4:
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hostile) Ready() error {
	switch h.random(6) {
	case 0:
		return errBroken
	case 1:
		panic("readiness")
	}
	return nil
}

// Runnables fail, panic, drain slowly, and are added and removed, while the lease is lost and the manager stops at any
// time. Run always returns in time; work of the leader never runs while another process can hold the lease; no Runnable
// runs twice at once. The bubble fails if a goroutine remains.
func TestHostileRunnables(t *testing.T) {
	t.Parallel()
	for seed := range testlength.Count(40, 400) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { attack(t, rand.New(rand.NewPCG(uint64(seed), 13))) })
		})
	}
}

func attack(t *testing.T, random *rand.Rand) {
	t.Helper()
	server := newLeaseServer(t)
	var work atomic.Int32
	config := Config{ShutdownTimeout: 20 * time.Second}
	if random.IntN(3) > 0 {
		config.LeaderElection = lease(t, server, "anna")
	}
	m := launch(t, config)
	begun := time.Now()
	rest := time.Duration(random.IntN(150)) * time.Second
	for i := 0; time.Since(begun) < rest; i++ {
		policies := []FailurePolicy{Restart, Restart, Restart, Continue, Continue, EndProcess}
		r := Runnable{
			Name: fmt.Sprint("r", random.IntN(8)), Group: Group(random.IntN(4)),
			OnFailure: policies[random.IntN(len(policies)-1+random.IntN(2))], DrainTime: time.Duration(1+random.IntN(12)) * time.Second,
		}
		values := rand.New(rand.NewPCG(random.Uint64(), 0))
		var lock atomic.Int32
		r.Runner = &hostile{t: t, group: r.Group, manager: m, running: new(atomic.Int32), work: &work, random: func(n int) int {
			for !lock.CompareAndSwap(0, 1) {
			}
			defer lock.Store(0)
			return values.IntN(n)
		}}
		switch random.IntN(5) {
		case 0, 1, 2:
			_ = m.Add(r)
		case 3:
			short, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(5))*time.Second)
			_ = m.Remove(short, r.Name)
			cancel()
		default:
			if config.LeaderElection != nil && random.IntN(3) == 0 {
				steal(server, "bert")
			}
		}
		_ = m.Ready()
		time.Sleep(time.Duration(random.IntN(6000)) * time.Millisecond)
		synctest.Wait()
		if config.LeaderElection != nil && holder(server) == "" && work.Load() > 0 {
			t.Error("the lease was released while work of the leader ran")
		}
	}
	ending := time.Now()
	m.cancel()
	select {
	case err := <-m.result:
		t.Log(err)
	case <-time.After(20 * time.Second):
		select {
		case err := <-m.result:
			t.Log(err)
		default:
			t.Errorf("Run has not returned after %s", time.Since(ending))
		}
	}
	if n := work.Load(); n > 0 && config.LeaderElection != nil && holder(server) == "" {
		t.Errorf("the lease was released while %d runnables of the leader ran", n)
	}
	pass(time.Minute) // the slow ones end
	expectError(t, m.Add(Runnable{Name: "late", Runner: RunFunc(func(context.Context) error { return nil })}), "stopping")
}

// A Runner without a stable name, and one that calls its manager from Name and Ready.
func TestRunnerThatCallsItsManager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caller{}
		m := launch(t, Config{})
		c.manager = m.Manager
		if err := m.Add(Runnable{Runner: c, Group: Servers}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		m.stopWithoutError()
	})
}

type caller struct{ manager *Manager }

func (c *caller) Name() string { <-c.manager.Elected(); return "caller" }

func (c *caller) Ready() error {
	if err := c.manager.Remove(context.Background(), "nobody"); err == nil {
		return errors.New("removed a runnable that does not exist")
	}
	return nil
}

func (c *caller) Run(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Checks that hang, or end their goroutine, fail. Further probes do not call a check again that has not returned, and a
// check that returns late is used again.
func TestChecksThatDoNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		proceed := make(chan struct{})
		hang := func() error {
			if calls.Add(1) == 1 {
				<-proceed
			}
			return nil
		}
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(Config{
			Listener: listener, IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler),
			Readiness: map[string]func() error{
				"hangs": hang, "exits": func() error { runtime.Goexit(); return nil }, "fine": func() error { return nil },
			},
			Liveness: map[string]func() error{"hangs": func() error { return nil }},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			began := time.Now()
			err := m.Ready()
			expectError(t, err, "hangs: the check has not returned for ", "exits: it called runtime.Goexit")
			if strings.Contains(err.Error(), "fine") || time.Since(began) > checkTimeout {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			if live := m.custom("liveness", m.config.Liveness); live[0].err != nil {
				t.Errorf("liveness: %v", live[0].err)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("the check that hangs was called %d times", n)
		}
		close(proceed)
		synctest.Wait()
		if err := m.Ready(); strings.Contains(err.Error(), "hangs") {
			t.Errorf("after the check has returned: %v", err)
		}
		_ = listener.Close()
	})
}

// A runnable that Remove is removing between two terms does not start again: it would run without an owner.
func TestRemovedRunnableDoesNotStartInNextTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int32
		m := launch(t, Config{Runnables: []Runnable{{Name: "a", Runner: RunFunc(func(ctx context.Context) error {
			starts.Add(1)
			<-ctx.Done()
			return nil
		})}}})
		pass(time.Second)
		m.stopGroup(LeaderOnly, nil)
		synctest.Wait()
		m.mu.Lock()
		m.members[0].removed = true // Remove has done this, and waits for mu
		m.mu.Unlock()
		m.startGroup(t.Context(), t.Context(), LeaderOnly)
		synctest.Wait()
		if n := starts.Load(); n != 1 {
			t.Errorf("it was started %d times", n)
		}
		if err := m.Remove(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		m.stopWithoutError()
	})
}

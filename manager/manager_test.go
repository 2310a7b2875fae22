package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

func TestGroupsStartAndStopInOrder(t *testing.T) {
	t.Parallel()
	for _, withLease := range []bool{false, true} {
		t.Run(fmt.Sprint("lease ", withLease), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				parts := map[Group]*part{}
				config := Config{Runnables: groups(&j, func(g Group, p *part) {
					parts[g] = p
					p.notReady, p.drain = errors.New("lists Pods"), time.Second
				})}
				server := newLeaseServer(t)
				if withLease {
					config.LeaderElection = lease(t, server, "anna")
				}
				m := launch(t, config)
				pass(time.Second)
				// Servers need not be ready before caches, and both before the others.
				j.expectStarts(t, "+servers, +caches")
				parts[Servers].setReady(nil)
				pass(3 * time.Second)
				j.expect(t, "")
				if text := m.logs.String(); !strings.Contains(text, "start waits for runnables") || !strings.Contains(text, "caches: lists Pods") {
					t.Errorf("the log does not say what the start waits for:\n%s", text)
				}
				parts[Caches].setReady(nil)
				pass(time.Second)
				j.expect(t, "+always")
				if holder(server) != "" {
					t.Error("the manager competed for the lease before Always was ready")
				}
				select {
				case <-m.Elected():
					t.Error("Elected is closed before LeaderOnly runs")
				default:
				}
				parts[Always].setReady(nil)
				pass(5 * time.Second)
				j.expect(t, "+leader-only")
				<-m.Elected()
				expectError(t, m.Ready(), "leader-only: lists Pods")
				parts[LeaderOnly].setReady(nil)
				if err := m.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}

				m.cancel()
				pass(3500 * time.Millisecond)
				j.expect(t, "-leader-only, -always, -caches")
				expectError(t, m.Ready(), "the manager is stopping")
				expectHolder(t, server, map[bool]string{true: "anna"}[withLease], "while a server drains")
				m.stopWithoutError()
				j.expect(t, "-servers")
				expectHolder(t, server, "", "after the end")
			})
		})
	}
}

func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	failures := map[string]func(context.Context) error{
		"error":    func(context.Context) error { return errBroken },
		"panic":    func(context.Context) error { panic("broken") },
		"Goexit":   func(context.Context) error { runtime.Goexit(); return nil },
		"canceled": func(context.Context) error { return context.Canceled }, // although nobody stopped it
	}
	texts := map[string]string{"error": "broken", "panic": "panicked: broken", "Goexit": "runtime.Goexit", "canceled": "context canceled"}
	for kind, fail := range failures {
		for g := LeaderOnly; g <= Servers; g++ {
			for _, policy := range []FailurePolicy{EndProcess, Restart, Continue} {
				for _, withLease := range []bool{false, true} {
					t.Run(fmt.Sprint(kind, " in ", g, ", policy ", int(policy), ", lease ", withLease), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							var j journal
							failing := &part{name: "failing", journal: &j, run: func(ctx context.Context) error {
								select {
								case <-time.After(10 * time.Second):
									return fail(ctx)
								case <-ctx.Done():
									return nil
								}
							}}
							other := &part{name: "other", journal: &j}
							config := Config{Runnables: []Runnable{
								{Runner: failing, Group: g, OnFailure: policy}, {Runner: other, Group: Always},
							}}
							server := newLeaseServer(t)
							if withLease {
								config.LeaderElection = lease(t, server, "anna")
							}
							m := launch(t, config)
							pass(14500 * time.Millisecond) // at most 4.4 s until the lease is held, and 10 s
							if strings.Contains(m.logs.String(), "panicked") != (kind == "panic") {
								t.Errorf("log of the panic:\n%s", m.logs.String())
							}
							starts := func() int { return strings.Count(m.logs.String(), `msg="runnable started" runnable=failing`) }
							switch policy {
							case EndProcess:
								err := <-m.result
								expectError(t, err, `runnable "failing"`, texts[kind])
								if kind == "error" && !errors.Is(err, errBroken) {
									t.Error("the error does not wrap the runnable's error")
								}
								if text := j.take(); !strings.Contains(text, "-other") {
									t.Errorf("the other runnable was not stopped: %s", text)
								}
							case Restart:
								for strings.Count(m.logs.String(), "restart delayed") < 2 {
									pass(time.Second / 10)
								}
								if starts() != 2 {
									t.Errorf("%d starts, want 2", starts())
								}
								expectError(t, m.Ready(), "failing: restart at", texts[kind])
								m.stopWithoutError()
							case Continue:
								pass(time.Duration(testlength.Count(10, 60)) * time.Minute)
								if starts() != 1 {
									t.Errorf("%d starts, want 1", starts())
								}
								if err := m.Ready(); err != nil {
									t.Errorf("not ready without a part that is not needed: %v", err)
								}
								m.stopWithoutError()
							}
							expectHolder(t, server, "", "after the end")
						})
					})
				}
			}
		}
	}
}

func TestRestartDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var starts []time.Duration
		m := launch(t, Config{Runnables: []Runnable{{Name: "a", OnFailure: Restart, Runner: RunFunc(func(context.Context) error {
			starts = append(starts, time.Since(begun))
			if len(starts) == 9 {
				time.Sleep(61 * time.Second)
			}
			return errBroken
		})}}})
		pass(247*time.Second + 62*time.Second)
		want := "[0s 1s 3s 7s 15s 31s 1m3s 2m3s 3m3s 4m5s 4m7s 4m11s 4m19s 4m35s 5m7s]"
		if got := fmt.Sprint(starts); got != want {
			t.Errorf("starts at %s\nwant %s", got, want)
		}
		m.stopWithoutError()
	})
}

func TestFinishedRunnable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		once := &part{name: "once", journal: &j, notReady: errBroken, run: func(context.Context) error { return nil }}
		m := launch(t, Config{Runnables: []Runnable{
			{Runner: once, Group: Caches, OnFailure: Restart}, {Runner: &part{name: "other", journal: &j}},
		}})
		pass(time.Hour)
		j.expect(t, "+once, -once, +other") // as soon as it has finished, although it is never ready
		if err := m.Ready(); err != nil {
			t.Errorf("not ready after a runnable finished: %v", err)
		}
		if err := m.Remove(t.Context(), "once"); err != nil {
			t.Errorf("remove a runnable that has finished: %v", err)
		}
		if err := m.Add(Runnable{Runner: once, Group: Caches}); err != nil {
			t.Errorf("its name is still used: %v", err)
		}
		j.expect(t, "+once, -once")
		m.stopWithoutError()
	})
}

func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	for g := LeaderOnly; g <= Servers; g++ {
		for _, limit := range []time.Duration{0, 2 * time.Second} {
			for _, withLease := range []bool{false, true} {
				t.Run(fmt.Sprint(g, " ", limit, " ", withLease), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						var j journal
						end := make(chan struct{})
						config := Config{Runnables: groups(&j, nil), ShutdownTimeout: 20 * time.Second}
						config.Runnables = append(config.Runnables, Runnable{
							Name: "stuck", Group: g, DrainTime: limit,
							Runner: RunFunc(func(context.Context) error { <-end; return nil }),
						})
						server := newLeaseServer(t)
						if withLease {
							config.LeaderElection = lease(t, server, "anna")
						}
						m := launch(t, config)
						pass(5 * time.Second)
						begun := time.Now()
						err := m.stop()
						expectError(t, err, `runnables did not end in time: "stuck" (`+g.String()+")")
						if strings.Contains(err.Error(), "always") != (g == Always) {
							t.Errorf("the error names runnables that have ended: %v", err)
						}
						want := 20 * time.Second
						if limit > 0 {
							want = limit
						}
						if took := time.Since(begun); took != want {
							t.Errorf("the shutdown took %s, want %s", took, want)
						}
						if text := j.take(); strings.Count(text, "-leader-only")+strings.Count(text, "-always")+
							strings.Count(text, "-caches")+strings.Count(text, "-servers") != 4 {
							t.Errorf("not all other runnables have ended: %s", text)
						}
						// The lease is not released while work of the leader may still run.
						wantHolder := ""
						if withLease && g == LeaderOnly {
							wantHolder = "anna"
						}
						expectHolder(t, server, wantHolder, "while a part runs")
						close(end)
						synctest.Wait()
					})
				})
			}
		}
	}
}

// TestDrainTimesRunAtTheSameTime checks that the drain times of a group begin together: at the end of its contexts.
func TestDrainTimesRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		config := Config{ShutdownTimeout: 20 * time.Second}
		for i := range 3 {
			config.Runnables = append(config.Runnables, Runnable{
				Name: fmt.Sprint("stuck ", i), DrainTime: 2 * time.Second,
				Runner: RunFunc(func(context.Context) error { <-end; return nil }),
			})
		}
		m := launch(t, config)
		begun := time.Now()
		expectError(t, m.stop(), `"stuck 0" (leader only), "stuck 1" (leader only), "stuck 2" (leader only)`)
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("the shutdown took %s, want 2s", took)
		}
		close(end)
		synctest.Wait()
	})
}

func TestErrorDuringShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var all []Runnable
		for name, run := range map[string]func(context.Context) error{
			"fails":  func(ctx context.Context) error { <-ctx.Done(); return errBroken },
			"panics": func(ctx context.Context) error { <-ctx.Done(); panic("late") },
			"wraps":  func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("stop: %w", ctx.Err()) },
		} {
			all = append(all, Runnable{Runner: &part{name: name, journal: &j, run: run}})
		}
		m := launch(t, Config{Runnables: all})
		err := m.stop()
		expectError(t, err, `runnable "fails": broken`, `runnable "panics"`, "panicked: late")
		if strings.Contains(err.Error(), "wraps") {
			t.Errorf("an error that the stop caused was returned: %v", err)
		}
	})
}

func TestLossOfLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		server := newLeaseServer(t)
		var cause error
		runnables := groups(&j, func(g Group, p *part) {
			if g == LeaderOnly {
				p.run = func(ctx context.Context) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					time.Sleep(3 * time.Second)
					return errBroken // logged, and not the end of the process
				}
			}
		})
		m := launch(t, Config{Runnables: runnables, LeaderElection: lease(t, server, "anna")})
		pass(5 * time.Second)
		j.expectStarts(t, "+servers, +caches", "+always", "+leader-only")
		elected := m.Elected()
		<-elected

		steal(server, "bert")
		pass(2500 * time.Millisecond)
		expectError(t, m.Ready(), "leadership was lost") // its work drains
		pass(5 * time.Second)
		j.expect(t, "-leader-only")
		if !errors.Is(cause, kube.ErrLeadershipLost) {
			t.Errorf("the context ended because of %v", cause)
		}
		if m.Elected() == elected {
			t.Error("Elected was not replaced")
		}
		if err := m.Ready(); err != nil || !m.Leadership().Standby {
			t.Errorf("a standby is not ready: %v, %+v", err, m.Leadership())
		}
		// bert does not renew, so anna leads again.
		pass(30 * time.Second)
		j.expect(t, "+leader-only")
		<-m.Elected()
		if err := m.Ready(); err != nil || m.Leadership().Leader != "anna" {
			t.Errorf("not ready: %v, the leader is %s", err, m.Leadership().Leader)
		}
		if err := m.stop(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("Run returned %v", err)
		}
	})
}

// TestAddBetweenTerms checks that a runnable that is added while another process leads starts with the next term.
func TestAddBetweenTerms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		server := newLeaseServer(t)
		m := launch(t, Config{
			Runnables:      []Runnable{{Runner: &part{name: "first", journal: &j, drain: 3 * time.Second}}},
			LeaderElection: lease(t, server, "anna"),
		})
		add := func(name string, task bool) {
			t.Helper()
			p := &part{name: name, journal: &j}
			if task {
				p.run = func(context.Context) error { return nil }
			}
			if err := m.Add(Runnable{Runner: p, Task: task}); err != nil {
				t.Error(err)
			}
		}
		pass(5 * time.Second)
		steal(server, "bert")
		pass(2500 * time.Millisecond)
		expectError(t, m.Ready(), "leadership was lost")
		add("during the drain", false)
		j.expect(t, "+first")
		pass(3 * time.Second)
		if state := m.Leadership(); !state.Standby {
			t.Errorf("the state is %+v", state)
		}
		add("in standby", false)
		add("task", true)
		j.expect(t, "-first")
		if err := m.Ready(); err != nil {
			t.Errorf("a standby is not ready: %v", err)
		}
		pass(30 * time.Second)
		wants := []string{"+during the drain", "+first", "+in standby", "+task", "-task"}
		if got := strings.Split(j.take(), ", "); !slices.Equal(slices.Sorted(slices.Values(got)), wants) || got[0] != "+task" {
			t.Errorf("starts of the next term: %q", got)
		}
		m.stopWithoutError()
	})
}

func TestStandby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j, k journal
		server := newLeaseServer(t)
		first := launch(t, Config{Runnables: groups(&j, nil), LeaderElection: lease(t, server, "anna")})
		pass(5 * time.Second)
		second := launch(t, Config{Runnables: groups(&k, nil), LeaderElection: lease(t, server, "bert")})
		pass(time.Minute)
		k.expectStarts(t, "+servers, +caches", "+always")
		if err := errors.Join(first.Ready(), second.Ready()); err != nil {
			t.Errorf("a replica is not ready: %v", err)
		}
		if err := second.Add(Runnable{Runner: &part{name: "added", journal: &k}}); err != nil {
			t.Error(err)
		}
		k.expect(t, "")
		first.stopWithoutError()
		pass(5 * time.Second)
		if text := k.take(); text != "+leader-only, +added" && text != "+added, +leader-only" {
			t.Errorf("the new leader ran %q", text)
		}
		second.stopWithoutError()
		expectHolder(t, server, "", "after the end")
	})
}

func TestRunnableThatIgnoresLossEndsProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		end := make(chan struct{})
		m := launch(t, Config{LeaderElection: lease(t, server, "anna"), Runnables: []Runnable{{
			Name: "stuck", DrainTime: 3 * time.Second, OnFailure: Restart,
			Runner: RunFunc(func(context.Context) error { <-end; return nil }),
		}}})
		pass(5 * time.Second)
		steal(server, "bert")
		expectError(t, <-m.result, "leadership was lost", `"stuck"`)
		expectHolder(t, server, "bert", "after its takeover")
		close(end)
		synctest.Wait()
	})
}

// Runnables see the loss before their contexts end, and return at once.
func TestLossSeenBeforeContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		var all []Runnable
		for i := range 50 {
			all = append(all, Runnable{Name: fmt.Sprint("writer ", i), Runner: RunFunc(func(ctx context.Context) error {
				select {
				case <-leadership.Lost(ctx):
					return fmt.Errorf("write: %w", leadership.Of(ctx).Err())
				case <-ctx.Done():
					return nil
				}
			})})
		}
		m := launch(t, Config{LeaderElection: lease(t, server, "anna"), Runnables: all})
		for range 5 {
			<-m.Elected()
			steal(server, "bert")
			pass(10 * time.Second)
		}
		m.stopWithoutError()
	})
}

// The lease is lost while the runnables start.
func TestLossDuringStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		server := newLeaseServer(t)
		slow := &part{name: "slow", journal: &j, notReady: errBroken, run: func(ctx context.Context) error {
			steal(server, "bert")
			<-ctx.Done()
			return ctx.Err()
		}}
		m := launch(t, Config{LeaderElection: lease(t, server, "anna"), Runnables: []Runnable{{Runner: slow}}})
		pass(10 * time.Second)
		j.expect(t, "+slow, -slow")
		if err := m.Ready(); err != nil {
			t.Errorf("a standby is not ready: %v", err)
		}
		m.stopWithoutError()
	})
}

func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		cache := &part{name: "cache", journal: &j, notReady: errBroken}
		m := launch(t, Config{Runnables: []Runnable{{Runner: cache, Group: Caches}}})
		add := func(name string, g Group) {
			t.Helper()
			if err := m.Add(Runnable{Runner: &part{name: name, journal: &j, drain: time.Second}, Group: g}); err != nil {
				t.Error(err)
			}
		}
		add("a", LeaderOnly)
		add("b", Servers)
		add("c", Always)
		j.expectStarts(t, "+cache, +b")
		if err := m.Remove(t.Context(), "a"); err != nil {
			t.Errorf("remove a runnable that was not started: %v", err)
		}
		cache.setReady(nil)
		pass(time.Second)
		j.expect(t, "+c")
		add("a", LeaderOnly) // the name is free again
		j.expect(t, "+a")
		expectError(t, m.Add(Runnable{Runner: cache}), `"cache" is already used`)
		begun := time.Now()
		if err := m.Remove(t.Context(), "c"); err != nil || time.Since(begun) != time.Second {
			t.Errorf("Remove returned %v after %s", err, time.Since(begun))
		}
		j.expect(t, "-c")
		expectError(t, m.Remove(t.Context(), "c"), "no runnable")
		m.cancel()
		synctest.Wait()
		expectError(t, m.Add(Runnable{Name: "d", Runner: cache}), "is stopping")
		if err := m.Remove(t.Context(), "b"); err != nil {
			t.Errorf("remove during the shutdown: %v", err)
		}
		m.stopWithoutError()
		expectError(t, m.Run(t.Context()), "already called")
	})
}

func TestRemoveReportsFailedAndStuckRunnables(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		m := launch(t, Config{Runnables: []Runnable{
			{Name: "stuck", DrainTime: time.Second / 2, Runner: RunFunc(func(context.Context) error { <-end; return nil })},
			{Name: "fails", Runner: RunFunc(func(ctx context.Context) error { <-ctx.Done(); return errBroken })},
			{Name: "waits", OnFailure: Restart, Runner: RunFunc(func(context.Context) error { return errBroken })},
		}})
		expectError(t, m.Remove(t.Context(), "stuck"), `"stuck" did not end within 500ms`)
		expectError(t, m.Add(Runnable{Name: "stuck", Runner: RunFunc(nil)}), "Runner is required", "already used")
		expectError(t, m.Remove(t.Context(), "fails"), "broken")
		if err := m.Remove(t.Context(), "waits"); err != nil {
			t.Errorf("remove a runnable that waits for its restart: %v", err)
		}
		close(end)
		synctest.Wait()
		expectError(t, m.Remove(t.Context(), "stuck"), "no runnable")
		m.stopWithoutError()
	})
}

// A runnable adds another one, removes itself, and stops.
// TestNameOfRemovedRunnableIsReusable checks that the name of a removed runnable can be used again,
// also if Remove did not wait for its end.
func TestNameOfRemovedRunnableIsReusable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		fails := func(context.Context) error { return errBroken }
		m := launch(t, Config{Runnables: []Runnable{
			{Runner: &part{name: "fails", journal: &j, run: fails}, OnFailure: Restart},
		}})
		pass(firstRestart / 2)
		j.expect(t, "+fails, -fails")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Remove(ended, "fails"); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if err := m.Ready(); err != nil {
			t.Errorf("not ready after the removal: %v", err)
		}
		if err := m.Add(Runnable{Runner: &part{name: "fails", journal: &j}}); err != nil {
			t.Errorf("its name is still used: %v", err)
		}
		pass(2 * firstRestart)
		j.expect(t, "+fails")
		m.stopWithoutError()
	})
}

func TestRunnableUsesItsManager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var m *running
		begin := make(chan struct{})
		m = launch(t, Config{Runnables: []Runnable{{Name: "a", Runner: RunFunc(func(ctx context.Context) error {
			<-begin
			j.add("added: %v", m.Add(Runnable{Runner: &part{name: "b", journal: &j}}))
			j.add("removed: %v", m.Remove(ctx, "a"))
			return ctx.Err()
		})}}})
		close(begin)
		pass(0)
		text := j.take()
		for _, want := range []string{"added: <nil>", "+b", `removed: remove from the manager: runnable "a" has not ended yet: context canceled`} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
		}
		m.stopWithoutError()
	})
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m, err := New(Config{Runnables: groups(&j, nil), IgnoreSignals: true})
		if err != nil {
			t.Fatal(err)
		}
		expectError(t, m.Ready(), "Run has not been called")
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		if text := j.take(); strings.Contains(text, "+always") {
			t.Errorf("it started runnables after its context had ended: %s", text)
		}
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprint("stuck ", stuck), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				var signals chan<- os.Signal
				end := make(chan struct{})
				status := -1
				m := launch(t, Config{
					Runnables: groups(&j, func(_ Group, p *part) {
						if stuck {
							p.run = func(context.Context) error { <-end; return nil }
						}
					}),
					notify: func(to chan<- os.Signal) func() { signals = to; return func() { j.add("signals stopped") } },
					exit:   func(s int) { status = s; close(end) },
				})
				signals <- syscall.SIGTERM
				synctest.Wait()
				if stuck {
					signals <- syscall.SIGINT
				}
				if err := <-m.result; err != nil {
					t.Errorf("Run failed: %v", err)
				}
				want, last := -1, `msg="manager stopped" reason="signal SIGTERM" status=0`
				if stuck {
					want = 130
					if !strings.Contains(m.logs.String(), `reason="second signal SIGINT" status=130`) {
						t.Errorf("log:\n%s", m.logs.String())
					}
				}
				if status != want {
					t.Errorf("exit status %d, want %d", status, want)
				}
				if text := strings.TrimSpace(m.logs.String()); !strings.HasSuffix(text, last) {
					t.Errorf("the log does not end with %s:\n%s", last, text)
				}
			})
		})
	}
}

func TestNewReportsAllMistakes(t *testing.T) {
	t.Parallel()
	var nobody *part
	_, err := New(Config{
		Runnables: []Runnable{
			{Runner: RunFunc(func(context.Context) error { return nil }), Group: 7, OnFailure: -1, DrainTime: -1},
			{Name: "a", Runner: nobody},
			{Name: "a", Runner: RunFunc(nil)},
			{Name: "http"},
		},
		LeaderElection:  &leader.Config{Name: "Not A Name"},
		ShutdownTimeout: -1,
		Readiness:       map[string]func() error{"disk": nil},
	})
	expectError(t, err, "Name is required", "Group is 7", "OnFailure is -1", "DrainTime is -1ns", "Runner is required",
		`"a" is already used`, `"http" is reserved`, "Cluster is required", `"Not A Name" is not a valid name`,
		"ShutdownTimeout is -1ns", `Readiness["disk"]`, "need Listen, Listener or ProbeListen")
	_, err = New(Config{Listen: ":0", Handlers: map[string]httpHandler{"GET /readyz": okHandler{}, "/x": nil, "{": okHandler{}}})
	expectError(t, err, `Handlers["GET /readyz"]`, `Handlers["/x"]: the handler is nil`, `Handlers["{"]`)
	slow := Runnable{Name: "slow", Runner: RunFunc(func(context.Context) error { return nil }), DrainTime: 30 * time.Second}
	_, err = New(Config{Runnables: []Runnable{slow}})
	expectError(t, err, "DrainTime is 30s: it must not exceed the manager's ShutdownTimeout, 29s")
	for _, config := range []Config{{}, {Runnables: []Runnable{slow}, ShutdownTimeout: slow.DrainTime}} {
		if _, err := New(config); err != nil {
			t.Errorf("a valid Config was rejected: %v", err)
		}
	}
	if ExitStatus(nil) != 0 || ExitStatus(errBroken) != 1 {
		t.Error("wrong exit status")
	}
}

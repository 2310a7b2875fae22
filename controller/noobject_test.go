package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/controller/internal/interruptions"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// team is the key of a controller without a primary kind: the value of ConfigMaps.
type team struct{ Cloud, Name string }

// teamsOf returns a source of the teams of the server's objects: those whose values are "cloud/name".
func teamsOf(t *testing.T, server *kindserver.Server[configMap]) (controller.Source, *informer.Informer[configMap]) {
	t.Helper()
	objects, err := informer.New(informer.Config[configMap]{Name: "teams", Retriever: server, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return source.Mapped(objects, func(obj configMap) []kube.Key {
		cloud, name, _ := strings.Cut(obj.Data["value"], "/")
		return []kube.Key{controller.EncodeKey(team{cloud, name})}
	}), objects
}

// teamConfig returns a config that records the runs of teams, and calls handler, which may be nil.
func teamConfig(handler controller.Handler[team], sources ...controller.Source) (controller.Config[controller.NoObject], *journal) {
	runs := &journal{}
	return controller.Config[controller.NoObject]{
		Name: "teams",
		Reconciler: controller.KeyHandler(func(ctx context.Context, key team) error {
			run, _ := controller.RunFrom(ctx)
			runs.add("%s: %s", key.Cloud+"/"+key.Name, run.Causes)
			if handler != nil {
				return handler(ctx, key)
			}
			return nil
		}),
		Sources: sources, ResyncInterval: -1, Logger: slog.New(slog.DiscardHandler),
	}, runs
}

func startTeams(t *testing.T, c controller.Config[controller.NoObject]) *controller.Controller[controller.NoObject] {
	t.Helper()
	ctrl, err := controller.New(c)
	if err != nil {
		t.Fatal(err)
	}
	start(t, ctrl)
	return ctrl
}

func put(server *kindserver.Server[configMap], name, value string) { server.Put(object(name, value)) }

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestContract03_ListedKeysOfNoObjectRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		for n := range 4000 {
			put(server, fmt.Sprint("o", n), fmt.Sprintf("eu/%d", n/2))
		}
		teams, _ := teamsOf(t, server)
		c, runs := teamConfig(func(context.Context, team) error { time.Sleep(time.Millisecond); return nil }, teams)
		ctrl := startTeams(t, c)
		most := 0
		for range 700 {
			time.Sleep(time.Millisecond)
			most = max(most, ctrl.Stats().Ready)
		}
		if most == 0 || most > 1024 {
			t.Errorf("%d keys were queued at a time", most)
		}
		time.Sleep(time.Minute)
		lines := runs.sorted()
		if len(lines) != 2000 || len(slices.CompactFunc(lines, func(a, b string) bool {
			return strings.Split(a, ":")[0] == strings.Split(b, ":")[0]
		})) != 2000 {
			t.Errorf("%d runs, want one for each of 2000 keys", len(lines))
		}
		put(server, "o1", "us/1")
		wantLines(t, "a moved object runs both keys", runs.sorted(),
			"eu/0: mapped teams: ns/o1 updated (spec) by editor", "us/1: mapped teams: ns/o1 updated (spec) by editor")
	})
}

// TestContract29_ListedKeysOfNoObjectAreResynced checks that a key is resynced once in each interval, until
// no source lists it, and that keys of a channel are not resynced. Nothing is kept of keys that are gone.
func TestContract29_ListedKeysOfNoObjectAreResynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		put(server, "a", "eu/a")
		put(server, "b", "eu/b")
		teams, _ := teamsOf(t, server)
		keys := make(chan kube.Key, 10)
		c, runs := teamConfig(func(_ context.Context, key team) error {
			if key.Name == "stays" {
				return controller.Terminal(errors.New("for good"))
			}
			return nil
		}, teams, source.Channel("channel", keys))
		c.ResyncInterval = time.Minute
		ctrl := startTeams(t, c)
		keys <- controller.EncodeKey(team{"eu", "passing"})
		wantLines(t, "start", runs.sorted(), "eu/a: mapped teams: ns/a listed", "eu/b: mapped teams: ns/b listed", "eu/passing: channel: triggered")
		for range 3 {
			time.Sleep(time.Minute)
			wantLines(t, "resync", runs.sorted(), "eu/a: resync", "eu/b: resync")
		}
		put(server, "c", "eu/stays")
		server.Delete(key("b"))
		wantLines(t, "changes", runs.sorted(), "eu/b: mapped teams: ns/b deleted", "eu/stays: mapped teams: ns/c added by editor")
		time.Sleep(2 * time.Minute)
		runs.take()
		if text := ctrl.Explain(controller.EncodeKey(team{"eu", "b"})); !strings.Contains(text, "eu/b is idle; next run when something changes\n  no source lists it: there are no resyncs") {
			t.Errorf("explanation of a key that is gone:\n%s", text)
		}
		if text := ctrl.Explain(controller.EncodeKey(team{"eu", "stays"})); !strings.Contains(text, "next run when its object changes or a source enqueues it (the error is terminal)") {
			t.Errorf("explanation of a terminal key:\n%s", text)
		}
		time.Sleep(time.Minute)
		wantLines(t, "resyncs of keys that are left and not terminal", runs.sorted(), "eu/a: resync")
		server.Delete(key("c"))
		time.Sleep(2 * time.Minute)
		runs.take()
		if n := ctrl.Stats().Failing; n != 0 {
			t.Errorf("%d failing keys are kept", n)
		}
		put(server, "c", "eu/stays")
		wantLines(t, "a terminal key runs when a source enqueues it", runs.sorted(), "eu/stays: mapped teams: ns/c added by editor")
	})
}

func TestContract24_PolledKeysOfNoObjectAreHandledAndResynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids atomic.Pointer[[]string]
		var failure atomic.Pointer[error]
		ids.Store(&[]string{"a", "b"})
		down := errors.New("down")
		failure.Store(&down)
		teams, _ := teamsOf(t, newServer())
		polled := poll.New(poll.Config{Name: "poll", Interval: time.Second, MaxBackoff: time.Second, Jitter: -1, Poller: poll.List(func(context.Context) (items []poll.Item, err error) {
			for _, id := range *ids.Load() {
				items = append(items, poll.Item{ID: id, Keys: []kube.Key{controller.EncodeKey(team{"eu", id})}})
			}
			return items, *failure.Load()
		})})
		c, runs := teamConfig(nil, teams, polled)
		c.ResyncInterval = 10 * time.Minute // the first resyncs come after a minute, long after the first poll
		startTeams(t, c)
		time.Sleep(10 * time.Second)
		wantLines(t, "before the first poll", runs.sorted())
		var none error
		failure.Store(&none)
		time.Sleep(2 * time.Second)
		wantLines(t, "first poll", runs.sorted(), "eu/a: poll: listed (a)", "eu/b: poll: listed (b)")
		time.Sleep(10*time.Minute - 13*time.Second)
		runs.take()
		time.Sleep(10 * time.Minute)
		wantLines(t, "resync", runs.sorted(), "eu/a: resync", "eu/b: resync")
		failure.Store(&down)
		time.Sleep(10 * time.Minute)
		wantLines(t, "resync while polls fail", runs.sorted(), "eu/a: resync", "eu/b: resync")
		failure.Store(&none)
		ids.Store(&[]string{"b"})
		time.Sleep(20 * time.Minute)
		runs.take()
		time.Sleep(10 * time.Minute)
		wantLines(t, "resync after a removal", runs.sorted(), "eu/b: resync")
	})
}

// TestTriggerAllRunsKeysThatSourcesList checks Trigger.All without a primary kind.
func TestTriggerAllRunsKeysThatSourcesList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		put(server, "a", "eu/a")
		put(server, "b", "eu/b")
		teams, _ := teamsOf(t, server)
		ask := make(chan struct{})
		c, runs := teamConfig(nil, teams, controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
			enqueue(kube.Key{}, controller.Trigger{All: true}) // before the first pass
			<-ask
			enqueue(kube.Key{}, controller.Trigger{All: true, Detail: "asked"})
			<-ctx.Done()
			return nil
		}))
		startTeams(t, c)
		wantLines(t, "start", runs.sorted(), "eu/a: mapped teams: ns/a listed", "eu/b: mapped teams: ns/b listed")
		ask <- struct{}{}
		time.Sleep(time.Second)
		wantLines(t, "all", runs.sorted(), "eu/a: func: triggered (asked)", "eu/b: func: triggered (asked)")
	})
}

// TestContract17_AnyChangeEndsBackoffOfNoObject checks which causes end a backoff without a primary kind.
func TestContract17_AnyChangeEndsBackoffOfNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		put(server, "a", "eu/a")
		teams, _ := teamsOf(t, server)
		var fails atomic.Bool
		fails.Store(true)
		c, runs := teamConfig(func(ctx context.Context, _ team) error {
			if fails.Load() {
				return errors.New("no luck")
			}
			return controller.SetTimer(ctx, "later", time.Minute)
		}, teams)
		c.Retry.Policies = map[retry.Class]retry.Policy{retry.Default: {Base: time.Hour, Factor: 1, Max: time.Hour}}
		ctrl := startTeams(t, c)
		runs.sorted()
		put(server, "b", "eu/a")
		wantLines(t, "a new object", runs.sorted(), "eu/a: retry 1 (error), mapped teams: ns/b added by editor")
		server.Delete(key("b"))
		wantLines(t, "a deletion", runs.sorted(), "eu/a: retry 2 (error), mapped teams: ns/b deleted")
		fails.Store(false)
		put(server, "a", "eu/a")
		time.Sleep(2 * time.Hour)
		wantLines(t, "a retry, and a timer", runs.sorted()[:2], "eu/a: retry 3 (error)", "eu/a: timer (later)")
		expectNoProblems(t, "at the end", ctrl)
	})
}

// TestKeysOfNoObjectDifferFromObjectKeys checks that a key is neither redirected nor changed: there are no
// cluster-scoped objects.
func TestKeysOfNoObjectDifferFromObjectKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := &journal{}
		keys := make(chan kube.Key, 3)
		web := kube.Key{Name: "web"}
		startTeams(t, controller.Config[controller.NoObject]{
			Name: "keys", Logger: slog.New(slog.DiscardHandler), ResyncInterval: -1,
			Reconciler: func(ctx context.Context, key kube.Key) error {
				runs.add("%#v", key)
				if run, _ := controller.RunFrom(ctx); run.Causes.Has(controller.CauseTimer) {
					return nil
				}
				return controller.SetTimer(ctx, "later", time.Minute)
			},
			Sources: []controller.Source{source.Channel("channel", keys), preparedSource{controller.PreparedSource{
				Name: "listing", Keys: func(yield func(kube.Key) bool) { yield(web) },
				Run: func(ctx context.Context, enqueue controller.Enqueue) error {
					enqueue(web, controller.Trigger{})
					<-ctx.Done()
					return nil
				},
			}}},
		})
		time.Sleep(time.Second)
		for _, k := range []kube.Key{{Namespace: "shop", Name: "web"}, {Namespace: "web"}} {
			keys <- k
		}
		wantLines(t, "keys", runs.sorted(), `kube.Key{Namespace:"", Name:"web"}`, `kube.Key{Namespace:"shop", Name:"web"}`, `kube.Key{Namespace:"web", Name:""}`)
		time.Sleep(2 * time.Minute)
		wantLines(t, "timers", runs.sorted(), `kube.Key{Namespace:"", Name:"web"}`, `kube.Key{Namespace:"shop", Name:"web"}`, `kube.Key{Namespace:"web", Name:""}`)
	})
}

func TestKeyOfAnotherTypeIsTerminalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := make(chan kube.Key, 3)
		c, runs := teamConfig(nil, source.Channel("channel", keys))
		ctrl := startTeams(t, c)
		keys <- kube.Key{Name: "web"}
		wantLines(t, "runs", runs.sorted())
		if run := ctrl.RecentRuns()[0]; run.Outcome != controller.OutcomeTerminal || !strings.Contains(run.Error, `"web" is not a key of type controller_test.team, as controller.EncodeKey returns it`) {
			t.Errorf("run: %s", run)
		}
	})
}

// TestPanicInKeysRemovesNoKeys checks that keys are not forgotten if a source fails to list them.
func TestPanicInKeysRemovesNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &journal{}
		c, runs := teamConfig(nil, preparedSource{controller.PreparedSource{
			Name: "broken",
			Keys: func(func(kube.Key) bool) { panic("no keys") },
			Run: func(ctx context.Context, enqueue controller.Enqueue) error {
				enqueue(controller.EncodeKey(team{"eu", "a"}), controller.Trigger{})
				<-ctx.Done()
				return nil
			},
		}})
		c.ResyncInterval, c.Logger = time.Minute, logs.logger(slog.LevelWarn)
		startTeams(t, c)
		time.Sleep(10*time.Minute + time.Second)
		if n := len(runs.sorted()); n < 9 {
			t.Errorf("%d runs in ten minutes", n)
		}
		if lines := strings.Join(logs.take(), "\n"); !strings.Contains(lines, "source failed to list its keys, all keys are kept") || !strings.Contains(lines, "no keys") {
			t.Errorf("log: %s", lines)
		}
	})
}

type preparedSource struct{ controller.PreparedSource }

func (s preparedSource) Prepare(controller.Target) (controller.PreparedSource, error) {
	return s.PreparedSource, nil
}

// TestContract30_UnlistedKeysOfNoObjectReleaseMemory checks that keys that no source lists take no memory after their runs, and what a
// listed key takes.
func TestContract30_UnlistedKeysOfNoObjectReleaseMemory(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		ask := make(chan string)
		emit := func(ctx context.Context, enqueue controller.Enqueue) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case prefix := <-ask:
					for i := range n {
						enqueue(controller.EncodeKey(team{prefix, fmt.Sprintf("%032d", i)}), controller.Trigger{FromList: true})
					}
				}
			}
		}
		var lists atomic.Bool
		c, _ := teamConfig(nil, preparedSource{controller.PreparedSource{Name: "listing", Run: emit, Keys: func(yield func(kube.Key) bool) {
			for i := range n {
				if lists.Load() && !yield(controller.EncodeKey(team{"listed", fmt.Sprintf("%032d", i)})) {
					return
				}
			}
		}}})
		c.Reconciler = controller.KeyHandler(func(context.Context, team) error { return nil })
		c.ResyncInterval = time.Hour
		ctrl := startTeams(t, c)
		settle := func(prefix string) uint64 {
			ask <- prefix
			time.Sleep(2*time.Hour + 30*time.Minute)
			if s := ctrl.Stats(); s.Ready+s.WaitingForRoom+s.Delayed != 0 {
				t.Fatalf("not idle: %+v", s)
			}
			runtime.GC()
			runtime.GC() // the first one fills caches that the second one empties
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		settle("warm")
		before := settle("passing")
		// The names and bookkeeping of keys that are kept would add 100 bytes for each key and round. What other tests of
		// this package left, and when caches are collected, changes the heap by up to 50 KB.
		const rounds = 3
		after := before
		for i := range rounds {
			after = settle(fmt.Sprint("gone", i))
		}
		if after > before+rounds*n*20 {
			t.Errorf("%d bytes are kept of each key that is gone", (after-before)/n/rounds)
		}
		// 160 bytes alone in a process; in a process that ran the other tests of this package, more than 500 with the race detector.
		lists.Store(true)
		if each := (settle("listed") - before) / n; each < 50 || each > 1000 {
			t.Errorf("%d bytes for each listed key", each)
		} else {
			t.Logf("%d bytes for each listed key", each)
		}
	})
}

func TestNewRejectsObjectFieldsOfNoObject(t *testing.T) {
	t.Parallel()
	_, err := controller.New(controller.Config[controller.NoObject]{
		Name: "teams", Cluster: &kube.Cluster{}, Handler: func(context.Context, controller.NoObject) error { return nil },
		Predicate: func(informer.Change) bool { return true },
		Deleted:   func(context.Context, controller.NoObject, bool) error { return nil },
		Events:    noEvents{}, Queue: controller.QueueConfig{Priority: func(informer.Change) controller.Priority { return 0 }},
		Workers: -1,
	})
	for _, want := range []string{
		"Handler, Predicate, Deleted, Queue.Priority, Events: a controller of NoObject has no objects of its own",
		"Reconciler is required", "Workers is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
	_, err = controller.New(controller.Config[controller.NoObject]{Name: "teams", Reconciler: controller.KeyHandler[team](nil)})
	if err == nil || !strings.Contains(err.Error(), "Reconciler is required") {
		t.Errorf("without a handler: %v", err)
	}
	ctrl, err := controller.New(controller.Config[controller.NoObject]{Name: "teams", Reconciler: func(context.Context, kube.Key) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if ctrl.Informer() != nil {
		t.Error("it has an informer")
	}
	if text := ctrl.Explain(kube.Key{Name: "a"}); !strings.Contains(text, "does not run: the controller is stopped") {
		t.Errorf("explanation: %s", text)
	}
}

type noEvents struct{}

func (noEvents) Event(corev1.ObjectReference, string, string, string, string) {}

// TestContract01_RunsOfOneKeyOfNoObjectNeverOverlap checks this for a key that several sources enqueue, also for sources
// that are added and removed, and that no wake-up is lost.
func TestContract01_RunsOfOneKeyOfNoObjectNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		teams, objects := teamsOf(t, server)
		var current [4]atomic.Int32
		var seen [4]atomic.Int64 // the number of objects of the team in its last run
		count := func(name string) (n int64) {
			for obj, err := range objects.List(informer.Query{}) {
				if err == nil && obj.Data["value"] == "eu/"+name {
					n++
				}
			}
			return n
		}
		keys := make(chan kube.Key)
		c, _ := teamConfig(func(_ context.Context, key team) error {
			i := key.Name[0] - '0'
			if current[i].Add(1) > 1 {
				t.Errorf("two runs of %s at the same time", key.Name)
			}
			defer current[i].Add(-1)
			n := count(key.Name)
			time.Sleep(7 * time.Millisecond)
			seen[i].Store(n)
			if n%5 == 3 {
				return errors.New("no luck")
			}
			return nil
		}, source.Channel("channel", keys))
		c.Workers, c.Reads = 8, []informer.Any{objects}
		ctrl := startTeams(t, c)
		time.Sleep(time.Second)
		remove := func() {}
		for n := range 400 {
			if n%100 == 0 {
				remove()
				var err error
				if remove, err = ctrl.AddSource(teams); err != nil {
					t.Fatal(err)
				}
			}
			put(server, fmt.Sprint("o", n%50), fmt.Sprint("eu/", n*7%4))
			keys <- controller.EncodeKey(team{"eu", fmt.Sprint(n % 4)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		for i := range seen {
			if want := count(fmt.Sprint(i)); seen[i].Load() != want {
				t.Errorf("the last run of %d saw %d objects, want %d", i, seen[i].Load(), want)
			}
		}
		remove()
	})
}

// TestInterruptedKeysOfNoObjectRunLast checks Config.Runs.StateDir without a primary kind: interrupted keys run after all
// others, and remain interrupted for a resync interval if no source lists them.
func TestInterruptedKeysOfNoObjectRunLast(t *testing.T) {
	dir := t.TempDir()
	f, err := interruptions.Open(dir, "teams", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	do(f.SetShutdown(false))
	for _, name := range []string{"bad", "channel", "gone"} {
		_, err := f.Begin(controller.EncodeKey(team{"eu", name}))
		do(err)
	}
	do(f.Close())
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		put(server, "bad", "eu/bad")
		for n := range 20 {
			put(server, fmt.Sprint("o", n), fmt.Sprint("eu/", n))
		}
		teams, _ := teamsOf(t, server)
		keys := make(chan kube.Key)
		c, runs := teamConfig(func(context.Context, team) error { time.Sleep(time.Second); return nil }, teams, source.Channel("channel", keys))
		c.Runs.StateDir, c.ResyncInterval = dir, time.Hour
		ctrl := startTeams(t, c)
		synctest.Wait()
		if n := len(ctrl.Problems()); n != 3 {
			t.Errorf("%d problems, want three interrupted keys", n)
		}
		time.Sleep(time.Minute)
		lines := runs.take()
		if len(lines) != 21 || !strings.HasPrefix(lines[20], "eu/bad: ") {
			t.Errorf("%d runs, the last one %s", len(lines), lines[len(lines)-1])
		}
		keys <- controller.EncodeKey(team{"eu", "channel"})
		time.Sleep(time.Minute)
		wantLines(t, "an interrupted key from a channel", runs.take(), "eu/channel: channel: triggered")
		problems := ctrl.Problems()
		if len(problems) != 1 || problems[0].Key.String() != "eu/gone" {
			t.Errorf("problems: %v", problems)
		}
		time.Sleep(time.Hour)
		expectNoProblems(t, "for keys that no source lists", ctrl)
	})
}

// A source that cannot read its objects may have any key.
func TestInterruptedKeysOfUnreadSourceAreKept(t *testing.T) {
	for _, unread := range []string{"informer", "Ready"} {
		t.Run(unread, func(t *testing.T) {
			dir := t.TempDir()
			f, err := interruptions.Open(dir, "teams", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			_, beginErr := f.Begin(controller.EncodeKey(team{"eu", "gone"}))
			if err := errors.Join(f.SetShutdown(false), beginErr, f.Close()); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				server := newServer("a")
				forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("jane may not"))
				var notReady atomic.Bool
				set := func(err error) {
					notReady.Store(err != nil)
					if unread == "informer" {
						server.Fail("list", err)
						server.Fail("watch", err)
					}
				}
				set(forbidden)
				objects, err := informer.New(informer.Config[configMap]{
					Retriever: server, Optional: true, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				c, _ := teamConfig(nil, source.Mapped(objects, func(configMap) []kube.Key { return nil }),
					readySource{func() error {
						if unread == "Ready" && notReady.Load() {
							return forbidden
						}
						return nil
					}})
				c.Runs.StateDir, c.ResyncInterval = dir, time.Hour
				ctrl := startTeams(t, c)
				interrupted := func() (n int) {
					for _, problem := range ctrl.Problems() {
						if problem.Type == controller.ProblemInterrupted {
							n++
						}
					}
					return n
				}
				time.Sleep(150 * time.Minute)
				if n := interrupted(); n != 1 {
					t.Errorf("%d interrupted keys while the source cannot be read, want 1", n)
				}
				set(nil)
				time.Sleep(150 * time.Minute)
				if n := interrupted(); n != 0 {
					t.Errorf("%d interrupted keys that no source lists", n)
				}
			})
		})
	}
}

// readySource is a source without keys.
type readySource struct{ ready func() error }

func (s readySource) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{
		Name: "ready", Ready: s.ready,
		Run: func(ctx context.Context, _ controller.Enqueue) error { <-ctx.Done(); return nil },
	}, nil
}

// TestDebugOfNoObjectAcceptsAnyKey checks the text of keys with several slashes.
func TestDebugOfNoObjectAcceptsAnyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		put(server, "a", "eu/a/b")
		teams, _ := teamsOf(t, server)
		c, runs := teamConfig(nil, teams)
		ctrl := startTeams(t, c)
		runs.sorted()
		state, err := ctrl.Debug("eu/a%2Fb")
		if text := fmt.Sprintf("%+v", state); err != nil || !strings.Contains(text, "Exists:true") || !strings.Contains(text, "listed -> success") {
			t.Errorf("%v: %s", err, text)
		}
		for _, other := range []string{"", "eu/a/b"} { // the second is not the key of an object
			if state, err := ctrl.Debug(other); err != nil {
				t.Errorf("%q: %v: %v", other, err, state)
			}
		}
	})
}

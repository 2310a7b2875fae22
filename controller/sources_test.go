package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	modulecache "github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// watching is a source that enqueues the names of another informer's objects.
type watching struct {
	objects *informer.Informer[configMap]
	owners  bool // enqueue the objects' owners, with the change
	running atomic.Int32
	mistake error
}

func newWatching(t *testing.T, server *kindserver.Server[configMap]) *watching {
	t.Helper()
	objects, err := informer.New(informer.Config[configMap]{Name: "watched", Retriever: server, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &watching{objects: objects}
}

func (w *watching) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Name: "watching", Reads: []informer.Any{w.objects}, Run: w.run}, w.mistake
}

func (w *watching) run(ctx context.Context, enqueue controller.Enqueue) error {
	w.running.Add(1)
	defer w.running.Add(-1)
	defer w.objects.Subscribe(func(c informer.Change) {
		if !w.owners {
			enqueue(c.Key, controller.Trigger{Detail: string(c.Type)})
		} else if state, err := modulecache.Of(c).New(); err == nil && state != nil {
			enqueue(key(state.Labels()["owner"]), controller.Trigger{Change: c})
		}
	})()
	<-ctx.Done()
	return nil
}

// watches returns the number of open watches of a server.
func watches(server *kindserver.Server[configMap]) int {
	_, _, open := server.Counts()
	return open
}

// reconciled returns a config with a reconciler that records keys and causes.
func reconciled(server informer.Retriever[configMap]) (controller.Config[configMap], *journal) {
	runs := &journal{}
	c := config(server, nil)
	c.Reconciler = func(ctx context.Context, key kube.Key) error {
		run, _ := controller.RunFrom(ctx)
		runs.add("%s: %s", key.Name, run.Causes)
		return nil
	}
	return c, runs
}

// sorted returns the recorded lines since the last call, in alphabetical order.
func (j *journal) sorted() []string {
	synctest.Wait()
	lines := j.take()
	slices.Sort(lines)
	return lines
}

func TestHandlersWaitForInformersOfSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer := newServer("other")
		otherServer.Fail("list", errors.New("not yet"))
		otherServer.Fail("watch", errors.New("not yet"))
		w := newWatching(t, otherServer)
		c, runs := reconciled(newServer("a"))
		c.Sources = []controller.Source{w}
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(time.Minute)
		if got := runs.sorted(); got != nil {
			t.Errorf("runs before the source's informer is synced: %v", got)
		}
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), `informer "watched": not yet`) {
			t.Errorf("Ready: %v", err)
		}
		otherServer.Fail("list", nil)
		otherServer.Fail("watch", nil)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"a: listed", "other: watching: triggered (listed)"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := ctrl.Ready(); err != nil {
			t.Error(err)
		}
		otherServer.Fail("list", errors.New("broken"))
		otherServer.Fail("watch", errors.New("broken"))
		otherServer.DropWatches()
		time.Sleep(time.Minute)
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("Ready hides the problem of a source's informer: %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := w.running.Load(); n != 0 || watches(otherServer) != 0 {
			t.Errorf("after the end %d sources run, and %d watches are open", n, watches(otherServer))
		}
	})
}

func TestSourcesAreAddedAndRemovedDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, otherServer := newServer("a"), newServer("other")
		w := newWatching(t, otherServer)
		c, runs := reconciled(server)
		ctrl := newController(t, c)
		start(t, ctrl)
		runs.sorted()
		remove, err := ctrl.AddSource(w)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"other: watching: triggered (listed)"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		otherServer.Fail("watch", errors.New("broken"))
		otherServer.Fail("list", errors.New("broken"))
		otherServer.DropWatches()
		time.Sleep(10 * time.Second)
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("an added source's informer is not asked whether it is ready: %v", err)
		}
		remove()
		if n := w.running.Load(); n != 0 || watches(otherServer) != 0 {
			t.Errorf("after remove has returned %d sources run, and %d watches are open", n, watches(otherServer))
		}
		if err := ctrl.Ready(); err != nil {
			t.Errorf("a source that was removed is asked whether it is ready: %v", err)
		}
		otherServer.Fail("watch", nil)
		otherServer.Fail("list", nil)
		otherServer.Put(object("later", "1"))
		server.Put(object("a", "2"))
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"a: updated (spec) by editor"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// The same source can be added again.
		remove, err = ctrl.AddSource(w)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"later: watching: triggered (listed)", "other: watching: triggered (listed)"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		remove()
	})
}

func TestSourcesAddedBeforeRunStartWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer, removed := newServer("other"), newServer("removed")
		c, runs := reconciled(newServer("a"))
		ctrl := newController(t, c)
		if _, err := ctrl.AddSource(newWatching(t, otherServer)); err != nil {
			t.Fatal(err)
		}
		remove, err := ctrl.AddSource(newWatching(t, removed))
		if err != nil {
			t.Fatal(err)
		}
		remove()
		if watches(otherServer) != 0 {
			t.Error("a source runs although the controller does not")
		}
		otherServer.Fail("watch", errors.New("not yet"))
		otherServer.Fail("list", errors.New("not yet"))
		stop := start(t, ctrl)
		time.Sleep(time.Minute)
		if got := runs.sorted(); got != nil {
			t.Errorf("runs before the informer of a source that was added in time is synced: %v", got)
		}
		otherServer.Fail("watch", nil)
		otherServer.Fail("list", nil)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"a: listed", "other: watching: triggered (listed)"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if _, n, _ := removed.Counts(); n != 0 || watches(otherServer) != 0 {
			t.Errorf("%d watches of what was removed before the start; %d are open after the end", n, watches(otherServer))
		}
	})
}

func TestAddedSourcesWorkInEachTermOfLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer, lateServer := newServer("other"), newServer("late")
		w := newWatching(t, otherServer)
		e := &elector{terms: make(chan chan struct{})}
		c, runs := reconciled(newServer("a"))
		c.LeaderElector = e
		ctrl := newController(t, c)
		start(t, ctrl)
		synctest.Wait()
		remove, err := ctrl.AddSource(w) // on a standby
		if err != nil {
			t.Fatal(err)
		}
		if w.running.Load() != 0 {
			t.Error("a standby runs a source")
		}
		all := []string{"a: listed", "other: watching: triggered (listed)"}
		for term := range 2 {
			lost := make(chan struct{})
			e.terms <- lost
			if diff := cmp.Diff(all, runs.sorted()); diff != "" {
				t.Errorf("term %d (-want +got):\n%s", term, diff)
			}
			close(lost)
			synctest.Wait()
			if w.running.Load() != 0 || watches(otherServer) != 0 {
				t.Errorf("after term %d the source runs, or its informer", term)
			}
		}
		remove() // on a standby
		lost := make(chan struct{})
		e.terms <- lost
		removeLate, err := ctrl.AddSource(newWatching(t, lateServer)) // possibly while it is syncing
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a: listed", "late: watching: triggered (listed)"}, runs.sorted()); diff != "" {
			t.Errorf("the last term (-want +got):\n%s", diff)
		}
		removeLate()
		if watches(lateServer) != 0 {
			t.Error("after it was removed its informer runs")
		}
		close(lost)
	})
}

// TestRemoveWaitsForSource checks that the source's Run has returned when remove returns, and that its
// informers ran until then.
func TestRemoveWaitsForSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer := newServer("other")
		s := &slowToEnd{watching: newWatching(t, otherServer)}
		ctrl := newController(t, config(newServer("a"), func(context.Context, configMap) error { return nil }))
		start(t, ctrl)
		remove, err := ctrl.AddSource(s)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		remove()
		if !s.ended.Load() || time.Since(began) != time.Second {
			t.Errorf("remove returned after %s; the source had ended: %t", time.Since(began), s.ended.Load())
		}
		if s.unready != nil {
			t.Errorf("the informer ended before the source: %v", s.unready)
		}
		if n := watches(otherServer); n != 0 {
			t.Errorf("%d watches are open", n)
		}
	})
}

// slowToEnd is a source that takes a second to end.
type slowToEnd struct {
	*watching
	ended   atomic.Bool
	unready error // the error of its informer when the source ended
}

func (s *slowToEnd) Prepare(target controller.Target) (controller.PreparedSource, error) {
	prepared, err := s.watching.Prepare(target)
	prepared.Run = s.run
	return prepared, err
}

func (s *slowToEnd) run(ctx context.Context, _ controller.Enqueue) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	s.unready = s.objects.Ready()
	s.ended.Store(true)
	return nil
}

func TestSourcesAddedAndRemovedDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, otherServer, lateServer := newServer("a"), newServer("other"), newServer("late")
		w, latecomer := newWatching(t, otherServer), newWatching(t, lateServer)
		began, release := make(chan struct{}), make(chan struct{})
		var retried atomic.Bool
		c := config(server, func(context.Context, configMap) error {
			close(began)
			<-release
			if err := w.objects.Ready(); err != nil && !retried.Load() {
				t.Errorf("the informer of a source ends before the last handler: %v", err)
			}
			return nil
		})
		c.Runs.DrainTimeout = time.Hour
		ctrl := newController(t, c)
		remove, err := ctrl.AddSource(w)
		if err != nil {
			t.Fatal(err)
		}
		removeTwo, err := ctrl.AddSource(newWatching(t, otherServer))
		if err != nil {
			t.Fatal(err)
		}
		stop := start(t, ctrl)
		<-began
		ended := make(chan error)
		go func() { ended <- stop() }() // received below
		synctest.Wait()
		if phase := ctrl.Stats().Phase; phase != controller.PhaseDraining {
			t.Fatalf("the phase is %s", phase)
		}
		removeLate, err := ctrl.AddSource(latecomer)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if latecomer.running.Load() != 0 || watches(lateServer) != 0 {
			t.Error("a source is begun during the drain")
		}
		removeLate()
		removeTwo() // from the draining term
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if watches(otherServer) != 0 || w.running.Load() != 0 {
			t.Error("something is left after the end")
		}
		remove() // after the end of Run
		retried.Store(true)
		began, release = make(chan struct{}), make(chan struct{})
		close(release)
		start(t, ctrl)
		synctest.Wait()
		if w.running.Load() != 0 || watches(otherServer) != 0 {
			t.Error("what was removed between two runs is back")
		}
	})
}

func TestRemovedSourceKeepsSharedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer := newServer("other")
		w := newWatching(t, otherServer)
		second := &watching{objects: w.objects}
		c, runs := reconciled(newServer("a"))
		c.Sources = []controller.Source{w}
		ctrl := newController(t, c)
		start(t, ctrl)
		remove, err := ctrl.AddSource(second)
		if err != nil {
			t.Fatal(err)
		}
		runs.sorted()
		remove()
		if n := watches(otherServer); n != 1 || second.running.Load() != 0 {
			t.Errorf("%d watches are open, want the one that the first source uses", n)
		}
		otherServer.Put(object("other", "2"))
		if diff := cmp.Diff([]string{"other: watching: triggered (updated)"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, all, _ := otherServer.Counts(); all != 1 {
			t.Errorf("%d watches were opened, want one for both", all)
		}
	})
}

func TestSourcesAddedAndRemovedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer := newServer("other")
		ctrl := newController(t, config(newServer("a"), func(context.Context, configMap) error { return nil }))
		w := newWatching(t, otherServer)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { // waited for below
				for j := range 30 {
					time.Sleep(time.Duration((i*7+j*3)%11) * time.Millisecond)
					remove, err := ctrl.AddSource(&watching{objects: w.objects})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration((i*5+j)%7) * time.Millisecond)
					remove()
				}
			})
		}
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := ctrl.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
		all.Wait()
		if n := watches(otherServer); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

func TestNewReportsInvalidSources(t *testing.T) {
	w := newWatching(t, newServer())
	w.mistake = errors.New("it has no owner")
	c := config(newServer(), func(context.Context, configMap) error { return nil })
	c.Sources = []controller.Source{w}
	_, err := controller.New(c)
	for _, want := range []string{"Sources[0]", "*controller_test.watching", "it has no owner"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q in it", err, want)
		}
	}
	c.Sources = nil
	ctrl := newController(t, c)
	for name, source := range map[string]controller.Source{"it has no owner": w, "is nil": nil} {
		remove, err := ctrl.AddSource(source)
		if err == nil || remove != nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), `controller "test"`) || !errors.Is(err, errors.Unwrap(err)) {
			t.Errorf("AddSource: %v, want %q in it", err, name)
		}
	}
}

func TestFailureOfAddedSourceEndsController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctrl := newController(t, config(newServer("a"), func(context.Context, configMap) error { return nil }))
		ended := make(chan error)
		go func() { ended <- ctrl.Run(t.Context()) }() // received below
		synctest.Wait()
		broken := errors.New("the source broke")
		remove, err := ctrl.AddSource(controller.SourceFunc(func(context.Context, controller.Enqueue) error { return broken }))
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, broken) || !strings.Contains(err.Error(), "added source") {
			t.Errorf("Run: %v", err)
		}
		remove()
	})
}

func TestPredicateSelectsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		c, runs := reconciled(server)
		var asked journal
		c.Predicate = func(change informer.Change) bool {
			_, after, err := informer.Decode[configMap](change)
			if err != nil {
				t.Error(err)
			}
			asked.add("%s %s", change.Type, change.Key.Name)
			return change.Type != informer.Updated || after.Data["value"] != "boring"
		}
		c.ResyncInterval = time.Hour
		ctrl := newController(t, c)
		start(t, ctrl)
		expect := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, runs.sorted()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		expect("a: listed")
		server.Put(object("a", "boring"))
		expect()
		server.Put(object("a", "news"))
		expect("a: updated (spec) by editor")
		server.Put(object("a", "boring"))
		server.Put(object("b", "boring"))
		expect("b: added by editor")
		server.Delete(key("b"))
		expect("b: deleted")
		// A dropped change is in the cache, and is handled at the next resync.
		obj, found, err := ctrl.Informer().Get(key("a"))
		if err != nil || !found || obj.Data["value"] != "boring" {
			t.Errorf("a is %v in the cache, %v, %v", obj, found, err)
		}
		time.Sleep(75 * time.Minute)
		expect("a: resync")
		want := []string{"listed a", "updated a", "updated a", "updated a", "added b", "deleted b", "listed a"}
		if diff := cmp.Diff(want, asked.take()); diff != "" {
			t.Errorf("the predicate was asked (-want +got):\n%s", diff)
		}
	})
}

// starting is a source that starts at once.
type starting struct{ begun, stopped atomic.Bool }

func (s *starting) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Start: s.start}, nil
}

func (s *starting) start(ctx context.Context, enqueue controller.Enqueue) (run func() error, err error) {
	s.begun.Store(true)
	enqueue(key("a"), controller.Trigger{Detail: "begun"})
	return func() error {
		<-ctx.Done()
		s.stopped.Store(true)
		return nil
	}, nil
}

// TestSourcesStartBeforeFirstRun checks that a source with a Start function has started before the first
// handler call, so that no later change is missed.
func TestSourcesStartBeforeFirstRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &starting{}
		var runs journal
		c := config(newServer("a"), func(ctx context.Context, obj configMap) error {
			run, _ := controller.RunFrom(ctx)
			runs.add("%s: %s (begun: %t)", obj.Name, run.Causes, source.begun.Load())
			return nil
		})
		c.Sources = []controller.Source{source}
		stop := start(t, newController(t, c))
		synctest.Wait()
		// The first pass adds its cause to the key, or finds that the key has run or is running.
		got := runs.take()
		if len(got) == 0 || len(got) > 2 || !strings.HasPrefix(got[0], "a: controller_test.starting: triggered (begun)") || !strings.HasSuffix(got[0], "(begun: true)") {
			t.Errorf("got %q, want a first run because the source has begun", got)
		}
		if err := stop(); err != nil || !source.stopped.Load() {
			t.Errorf("Run: %v; the source was stopped: %t", err, source.stopped.Load())
		}
	})
}

// TestSourceThatFailsToStartEndsControllerBeforeFirstRun checks that no handler is called if a source fails to start: a
// handler that ran could write what the source's error forbids.
func TestSourceThatFailsToStartEndsControllerBeforeFirstRun(t *testing.T) {
	refused := errors.New("refused")
	for name, start := range map[string]func() error{
		"error":  func() error { return refused },
		"late":   func() error { time.Sleep(time.Minute); return refused },
		"panic":  func() error { failures()["panic"](); return nil },
		"Goexit": func() error { failures()["Goexit"](); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			for range 200 { // the workers start beside the function run of a source
				var runs journal
				c := config(newServer("a"), func(_ context.Context, obj configMap) error {
					runs.add("%s", obj.Name)
					return nil
				})
				last := &starting{}
				c.Sources = []controller.Source{prepared{Start: func(context.Context, controller.Enqueue) (func() error, error) {
					return nil, start()
				}}, last}
				synctest.Test(t, func(t *testing.T) {
					err := newController(t, c).Run(t.Context())
					if err == nil || !strings.Contains(err.Error(), "source 0") {
						t.Errorf("Run returned %v", err)
					}
				})
				if ran := runs.take(); len(ran) > 0 {
					t.Fatalf("the handler ran for %q", ran)
				}
			}
		})
	}
}

// A source that has nothing to do ends in Start, without a function to run.
func TestSourceThatEndsInStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		c := config(newServer("a"), func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			return nil
		})
		ended := prepared{Start: func(context.Context, controller.Enqueue) (func() error, error) { return nil, nil }}
		c.Sources = []controller.Source{ended}
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		synctest.Wait()
		remove, err := ctrl.AddSource(ended)
		if err != nil {
			t.Fatal(err)
		}
		remove()
		if got := runs.take(); len(got) != 1 {
			t.Errorf("runs %q", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// nosy is a source that calls methods of its controller in Start.
type nosy struct{ ask func() }

func (s nosy) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Start: func(context.Context, controller.Enqueue) (run func() error, err error) {
		s.ask()
		return func() error { return nil }, nil
	}}, nil
}

func TestSourceUsesItsControllerInStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctrl *controller.Controller[configMap]
		otherServer := newServer("other")
		asked := 0
		ask := nosy{func() {
			asked++
			if ctrl.Ready() == nil && asked == 1 {
				t.Error("ready while it begins")
			}
			remove, err := ctrl.AddSource(newWatching(t, otherServer))
			if err != nil {
				t.Error(err)
				return
			}
			remove()
		}}
		c := config(newServer("a"), func(context.Context, configMap) error { return nil })
		c.Sources = []controller.Source{ask}
		ctrl = newController(t, c)
		start(t, ctrl)
		synctest.Wait()
		remove, err := ctrl.AddSource(ask)
		if err != nil {
			t.Fatal(err)
		}
		remove()
		if asked != 2 || watches(otherServer) != 0 {
			t.Errorf("began %d times, %d watches are left", asked, watches(otherServer))
		}
	})
}

// TestReadyDoesNotWaitForEndingInformer checks that Ready does not wait for a source's informer that its last
// user leaves. Such an informer cannot be joined until it has ended.
func TestReadyDoesNotWaitForEndingInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := informer.FromListerWatcher[configMap](&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				<-release // a list that ignores its context
				return nil, errors.New("late")
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, errors.New("no watch")
			},
		})
		objects, err := informer.New(informer.Config[configMap]{Name: "slow", Retriever: slow, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		leave := objects.Join(t.Context())
		synctest.Wait()
		left := make(chan struct{})
		go func() { leave(); close(left) }() // waited for below
		synctest.Wait()
		c := config(newServer("a"), func(context.Context, configMap) error { return nil })
		c.Sources = []controller.Source{&watching{objects: objects}}
		ctrl := newController(t, c)
		start(t, ctrl)
		synctest.Wait()
		if err := ctrl.Ready(); err == nil {
			t.Error("ready before the source's informer is")
		}
		close(release)
		<-left
	})
}

// TestSourceRemovedDuringSyncEndsWait checks that removing a source with an informer that
// cannot list ends the wait for the first handling.
func TestSourceRemovedDuringSyncEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherServer := newServer("other")
		otherServer.Fail("list", errors.New("no such kind"))
		otherServer.Fail("watch", errors.New("no such kind"))
		c, runs := reconciled(newServer("a"))
		ctrl := newController(t, c)
		remove, err := ctrl.AddSource(newWatching(t, otherServer))
		if err != nil {
			t.Fatal(err)
		}
		start(t, ctrl)
		time.Sleep(time.Minute)
		if got := runs.sorted(); got != nil {
			t.Errorf("runs before the source's informer is synced: %v", got)
		}
		remove()
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"a: listed"}, runs.sorted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := ctrl.Ready(); err != nil {
			t.Error(err)
		}
	})
}

package source_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	modulecache "github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

// newShared returns a SharedIndexInformer of client-go with a resync each minute.
func newShared(server *kindserver.Server[configMap]) cache.SharedIndexInformer {
	objects := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := server.List(ctx, o)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return server.Watch(ctx, o)
		},
	}, child(""), time.Minute, cache.Indexers{})
	// The default handler sleeps according to the time of the last error in the process, which has another clock.
	if err := objects.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		panic(err)
	}
	return objects
}

// startShared runs a SharedInformer until stop is called or the test ends.
func startShared(t *testing.T, objects cache.SharedInformer) (stop func()) {
	t.Helper()
	return testrun.Start(t, func(ctx context.Context) error {
		objects.RunWithContext(ctx)
		return nil
	})
}

// runningShared returns a SharedInformer of a server's objects that runs until the test ends.
func runningShared(t *testing.T, server *kindserver.Server[configMap]) cache.SharedIndexInformer {
	t.Helper()
	objects := newShared(server)
	startShared(t, objects)
	return objects
}

func TestSharedEnqueuesForBothStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a b"))
		objects := runningShared(t, server)
		q, stop := start(t, source.Shared("shared", objects, targets))
		q.expect(t, "ns/a: ns/c listed", "ns/b: ns/c listed")
		server.Put(pointing("c", "b d"))
		q.expect(t, "ns/a: ns/c updated", "ns/b: ns/c updated", "ns/d: ns/c updated")
		server.Put(pointing("e", "a"))
		q.expect(t, "ns/a: ns/e added")
		time.Sleep(5 * time.Minute)
		q.expect(t) // resyncs of client-go
		server.DropWatches()
		server.Compact()
		time.Sleep(time.Minute)
		q.expect(t) // a list with the same states
		server.Delete(key("c"))
		q.expect(t, "ns/b: ns/c deleted", "ns/d: ns/c deleted")
		stop()
		server.Put(pointing("e", "b"))
		q.expect(t)
		q, stop = start(t, source.Shared("shared", objects, targets)) // the next term
		q.expect(t, "ns/b: ns/e listed")
		stop()
	})
}

func TestSharedPredicatesSeeBothStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a"))
		objects := runningShared(t, server)
		var certain []bool
		q, stop := start(t, source.Shared("shared", objects, targets, func(c informer.Change) bool {
			if c.Type == informer.Deleted {
				certain = append(certain, modulecache.Of(c).Complete())
			}
			return c.Type != informer.Listed || c.FromList()
		}, predicate.Changed(kube.ChangedLabels)))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
		server.Put(pointing("c", "b"))
		q.expect(t)
		obj := pointing("c", "d")
		obj.Labels = map[string]string{"x": "y"}
		server.Put(obj)
		q.expect(t, "ns/b: ns/c updated", "ns/d: ns/c updated")
		server.Delete(key("c"))
		q.expect(t, "ns/d: ns/c deleted")
		// A deletion that the informer misses is delivered as a tombstone.
		server.Put(pointing("c", "a"))
		q.expect(t, "ns/a: ns/c added")
		server.Fail("list", errors.New("interrupted"))
		server.Fail("watch", errors.New("interrupted"))
		server.DropWatches()
		synctest.Wait()
		server.Delete(key("c"))
		server.Compact()
		server.Fail("list", nil)
		server.Fail("watch", nil)
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: ns/c deleted")
		if len(certain) != 2 || !certain[0] || certain[1] {
			t.Errorf("the deletions are certain: %v, want the first one only", certain)
		}
	})
}

// TestSharedStartsAfterInformerSyncs also checks the informer that stops before the source.
func TestSharedStartsAfterInformerSyncs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a"))
		objects := newShared(server)
		prepared := prepare(t, source.Shared("shared", objects, targets))
		q := &queue{}
		started, ended := make(chan struct{}), make(chan error)
		go func() { // received below
			run, err := prepared.Start(t.Context(), q.add)
			close(started)
			if err == nil {
				err = run()
			}
			ended <- err
		}()
		time.Sleep(time.Minute)
		select {
		case <-started:
			t.Error("it has started before the informer runs")
		default:
		}
		if err := prepared.Ready(); err == nil || !strings.Contains(err.Error(), "not synced") {
			t.Errorf("Ready: %v", err)
		}
		stop := startShared(t, objects)
		<-started
		if q.expect(t, "ns/a: ns/c listed"); prepared.Ready() != nil {
			t.Error(prepared.Ready())
		}
		stop()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("run: %v", err)
		}
		if err := prepared.Ready(); err == nil {
			t.Error("ready after the informer has stopped")
		}
		if err := startAndRun(t.Context(), prepared, q.add); err == nil {
			t.Error("an informer that has stopped can be used")
		}
	})
}

func TestSharedEndsWhileWaitingForInformer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, stop := start(t, source.Shared("shared", newShared(newServer()), targets))
		time.Sleep(time.Second)
		stop()
	})
}

// stopped is an informer that stops after its handlers were added.
type stopped struct{ cache.SharedInformer }

func (stopped) IsStopped() bool { return true }

// A source whose informer has stopped before the first list fails, unless it ends too.
func TestSharedWithInformerThatStopsDuringStart(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			prepared := prepare(t, source.Shared("shared", stopped{newShared(newServer())}, targets))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if ends {
				cancel()
			}
			if err := startAndRun(ctx, prepared, (&queue{}).add); ends != (err == nil) {
				t.Errorf("ended: %t, error: %v", ends, err)
			}
		})
	}
}

// TestSharedEndsIfInformerStopsBeforeSync checks that a source does not wait for an informer that will never
// sync.
func TestSharedEndsIfInformerStopsBeforeSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Fail("list", errors.New("forbidden"))
		objects := newShared(server)
		prepared := prepare(t, source.Shared("shared", objects, targets))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- startAndRun(ctx, prepared, (&queue{}).add) }() // received below
		stop := startShared(t, objects)
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			t.Fatalf("it has ended before the informer has stopped: %v", err)
		default:
		}
		stop()
		begun := time.Now()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "stopped") || time.Since(begun) > time.Second {
			t.Errorf("run: %v after %s", err, time.Since(begun))
		}
	})
}

// TestSharedEndsAfterItsFunction checks that a source ends only when a call of the function has returned: it would
// enqueue keys in the next term otherwise.
func TestSharedEndsAfterItsFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		objects := runningShared(t, server)
		proceed := make(chan struct{})
		prepared := prepare(t, source.Shared("shared", objects, func(obj configMap) []kube.Key {
			<-proceed
			return targets(obj)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		q, ended := &queue{}, make(chan error, 1)
		go func() { ended <- startAndRun(ctx, prepared, q.add) }() // received below
		synctest.Wait()
		server.Put(pointing("c", "a"))
		synctest.Wait()
		cancel()
		time.Sleep(time.Minute)
		if len(ended) > 0 {
			t.Error("it has ended during a call of the function")
		}
		close(proceed)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		q.expect(t, "ns/a: ns/c added")
	})
}

func TestPanicOfSharedFunctionKeepsOtherKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "panic"))
		objects := runningShared(t, server)
		logs := &logBuffer{}
		prepared, err := source.Shared("shared", objects, func(obj configMap) []kube.Key {
			if obj.Data["to"] == "panic" {
				panic("broken function")
			}
			return targets(obj)
		}, func(informer.Change) bool { panic("broken predicate") }).Prepare(controller.Target{Logger: logs.logger()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		q, ended := &queue{}, make(chan error)
		go func() { ended <- startAndRun(ctx, prepared, q.add) }() // received below
		q.expect(t)
		server.Put(pointing("c", "a"))
		q.expect(t, "ns/a: ns/c updated")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if text := logs.String(); !strings.Contains(text, "broken function") || !strings.Contains(text, "ns/c") {
			t.Errorf("the log is %s", text)
		}
	})
}

func TestSharedReportsMistakes(t *testing.T) {
	t.Parallel()
	err := validate(source.Shared[configMap]("shared", nil, nil, nil))
	for _, want := range []string{"shared", "the informer is required", "the function is required", "predicate 0 is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// TestSharedInController checks that the first run sees all objects of the SharedInformer, in each run of the
// controller.
func TestSharedInController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, own := newServer(), newServer()
		server.Put(pointing("c", "a"))
		own.Put(child("a"))
		own.Put(child("b"))
		objects := newShared(server)
		runs := &queue{}
		ctrl, err := controller.New(controller.Config[configMap]{
			Name: "test", Retriever: own, Logger: slog.New(slog.DiscardHandler),
			Handler: func(_ context.Context, obj configMap) error {
				if _, found, err := objects.GetStore().GetByKey("ns/c"); !found || err != nil {
					t.Errorf("a handler is called before the informer has its objects: %v", err)
				}
				runs.note(kube.KeyOf(obj), "run")
				return nil
			},
			Sources: []controller.Source{source.Shared("shared", objects, targets)},
		})
		if err != nil {
			t.Fatal(err)
		}
		var stopShared func()
		for term := range 2 {
			stop := testrun.Start(t, ctrl.Run)
			if term == 0 {
				time.Sleep(time.Minute)
				if ctrl.Ready() == nil {
					t.Error("the controller is ready before the informer runs")
				}
				runs.expect(t)
				stopShared = startShared(t, objects)
			}
			time.Sleep(time.Second)
			runs.expect(t, "ns/a: run", "ns/b: run")
			server.Put(pointing("c", []string{"b", "a"}[term]))
			time.Sleep(time.Second)
			runs.expect(t, "ns/a: run", "ns/b: run")
			stop()
			server.Put(pointing("c", []string{"b x", "a"}[term])) // no handler is registered
			runs.expect(t)
		}
		stopShared()
	})
}

// TestSharedIsLimitedBySyncTimeout checks that the controller ends if the informer does not sync in time.
func TestSharedIsLimitedBySyncTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctrl, err := controller.New(controller.Config[controller.NoObject]{
			Name: "test", Logger: slog.New(slog.DiscardHandler), SyncTimeout: 2 * time.Minute,
			Reconciler: func(context.Context, kube.Key) error { return nil },
			Sources:    []controller.Source{source.Shared("shared", newShared(newServer()), targets)},
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = ctrl.Run(t.Context())
		if took := time.Since(begun); err == nil || took != 2*time.Minute || !strings.Contains(err.Error(), "source shared: the SharedInformer has not synced") {
			t.Errorf("Run returned after %s: %v", took, err)
		}
	})
}

// TestContract03_KeysOfSharedAreResynced checks that a controller without a primary kind resyncs the keys of the objects
// that its SharedInformer has and its predicates select.
func TestContract03_KeysOfSharedAreResynced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a b"), pointing("dropped", "x"), pointing("panics", "panic"))
		objects := runningShared(t, server)
		runs := &queue{}
		ctrl, err := controller.New(controller.Config[controller.NoObject]{
			Name: "test", Logger: slog.New(slog.DiscardHandler), ResyncInterval: time.Hour,
			Reconciler: func(_ context.Context, key kube.Key) error { runs.note(key, "run"); return nil },
			Sources: []controller.Source{source.Shared("shared", objects, func(obj configMap) []kube.Key {
				if obj.Name == "panics" {
					panic("broken function")
				}
				return targets(obj)
			}, func(c informer.Change) bool { return c.Key.Name != "dropped" })},
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, ctrl.Run)
		time.Sleep(time.Minute)
		runs.expect(t, "ns/a: run", "ns/b: run")
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		counts := map[string]int{}
		for _, line := range runs.take() {
			counts[line]++
		}
		if a, b := counts["ns/a: run"], counts["ns/b: run"]; a < 4 || a > 6 || b < 4 || b > 6 || len(counts) != 2 {
			t.Errorf("runs in 5 hours: %v, want one an hour for ns/a and ns/b", counts)
		}
		server.Delete(key("c"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		runs.take()
		time.Sleep(5 * time.Hour)
		runs.expect(t) // no object has the keys
	})
}

// TestChangesOfSharedHaveKind: client-go removes the kind from typed objects.
func TestChangesOfSharedHaveKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a"))
		objects := newShared(server)
		err := objects.SetTransform(func(obj any) (any, error) {
			typed := obj.(configMap).DeepCopy()
			typed.TypeMeta = metav1.TypeMeta{}
			return typed, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		startShared(t, objects)
		var kinds []string
		prepared := prepare(t, source.Shared("shared", objects, targets))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { // received below
			ended <- startAndRun(ctx, prepared, func(_ kube.Key, why controller.Trigger) {
				kinds = append(kinds, string(why.Change.Type)+" "+why.Change.Kind().String())
			})
		}()
		time.Sleep(time.Second) // it has started
		server.Delete(key("c"))
		synctest.Wait()
		if want := []string{"listed /v1, Kind=ConfigMap", "deleted /v1, Kind=ConfigMap"}; !slices.Equal(kinds, want) {
			t.Errorf("the changes are %q, want %q", kinds, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

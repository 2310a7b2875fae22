package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

// pointing returns a ConfigMap with the names of other objects in its data.
func pointing(name, to string) configMap {
	obj := child(name)
	obj.Data = map[string]string{"to": to}
	return obj
}

// targets returns the keys of the objects that a ConfigMap names.
func targets(obj configMap) []kube.Key {
	var keys []kube.Key
	for name := range strings.FieldsSeq(obj.Data["to"]) {
		keys = append(keys, key(name))
	}
	return keys
}

func TestMappedMapsOldAndNewState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a b"))
		q, stop := start(t, source.Mapped(newInformer(t, server), targets))
		defer stop()
		q.expect(t, "ns/a: ns/c listed", "ns/b: ns/c listed")
		server.Put(pointing("c", "b d"))
		q.expect(t, "ns/a: ns/c updated", "ns/b: ns/c updated", "ns/d: ns/c updated")
		server.Put(pointing("e", "a"))
		q.expect(t, "ns/a: ns/e added")
		server.Put(pointing("e", ""))
		q.expect(t, "ns/a: ns/e updated")
		server.Put(pointing("e", ""))
		q.expect(t)
		server.Delete(key("c"))
		q.expect(t, "ns/b: ns/c deleted", "ns/d: ns/c deleted")
	})
}

// The function gets a copy of the object, so it may modify it.
func TestMappedPassesCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a"))
		objects := newInformer(t, server)
		q, stop := start(t, source.Mapped(objects, func(obj configMap) []kube.Key {
			keys := targets(obj)
			obj.Data["to"] = "elsewhere"
			return keys
		}))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
		obj, _, err := objects.Get(key("c"))
		if err != nil || obj.Data["to"] != "a" {
			t.Errorf("the informer has %v, %v", obj, err)
		}
	})
}

func TestLateSourceReceivesExistingObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a"))
		objects := newInformer(t, server)
		leave := objects.Join(t.Context())
		defer leave()
		synctest.Wait()
		q, stop := start(t, source.Mapped(objects, targets))
		q.expect(t, "ns/a: ns/c listed")
		stop()
		server.Put(pointing("c", "b"))
		q.expect(t) // the source has stopped
		q, stop = start(t, source.Mapped(objects, targets))
		defer stop()
		q.expect(t, "ns/b: ns/c listed")
	})
}

// A source stops in the middle of an announcement, while the informer keeps running for others. (The test does not use
// a synctest bubble: time does not advance there while a goroutine waits for a lock.)
func TestSourceEnqueuesNothingAfterRun(t *testing.T) {
	t.Parallel()
	server := newServer(pointing("before", ""))
	objects := newInformer(t, server)
	leave := objects.Join(t.Context())
	defer leave()
	if err := objects.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	s := source.Mapped(objects, func(obj configMap) []kube.Key {
		asked <- struct{}{}
		<-answer
		return targets(obj)
	})
	ctx, cancel := context.WithCancel(t.Context())
	q := &queue{}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, q.add) }() // waited for below
	<-asked                                     // for the existing object; start waits for the answer
	answer <- struct{}{}
	server.Put(pointing("c", "a"))
	<-asked
	cancel()
	for range 1000 {
		select {
		case err := <-ended:
			t.Fatalf("Run returned %v while a change was being announced", err)
		default:
			runtime.Gosched()
		}
	}
	answer <- struct{}{}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	q.take()
	changes := make(chan informer.Change, 10)
	defer objects.Subscribe(func(c informer.Change) { changes <- c })()
	<-changes // the two existing objects
	<-changes
	server.Put(pointing("c", "b"))
	<-changes
	if triggers := q.take(); len(triggers) > 0 {
		t.Errorf("enqueued after the end: %v", triggers)
	}
	if !objects.Health().Running {
		t.Error("the informer has ended with the source")
	}
}

// A source must not wait for the announcement of a large list when it stops.
func TestEndedMappedSourceDoesNotCallMapper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		for i := range 100 {
			server.Put(pointing(fmt.Sprint("c", i), "a"))
		}
		objects := newInformer(t, server)
		leave := objects.Join(t.Context())
		defer leave()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		s := source.Mapped(objects, func(obj configMap) []kube.Key {
			asked++
			cancel()
			return targets(obj)
		})
		if err := run(ctx, s, func(kube.Key, controller.Trigger) {}); err != nil || asked != 1 {
			t.Errorf("Run: %v; it asked %d times", err, asked)
		}
	})
}

// A Mapped function and a predicate are called while the informer announces a change. Reading the same informer must
// then neither block nor return an older state.
func TestMapperReadsItsInformer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "1"))
		objects := newInformer(t, server)
		var read []string
		look := func(by, name string) {
			state := "gone"
			obj, found, err := objects.Get(key(name))
			if err != nil {
				t.Error(err)
			}
			if found {
				state = obj.Data["to"]
			}
			listed, synced := 0, objects.Health().Synced
			for _, err := range objects.List(informer.Query{}) {
				if (err == nil) != synced {
					t.Errorf("%s: a list of all objects: %v; synced is %t", by, err, synced)
				}
				listed++
			}
			if !synced {
				listed = objects.Len()
			}
			_ = objects.Ready() // not yet, in the first list
			if n := objects.Health().Objects; n != listed || objects.Len() != listed || cache.Of(objects).Has(key(name)) != found {
				t.Errorf("%s: %d are listed, Health says %d", by, listed, n)
			}
			for range objects.Walk(0, 1) {
				listed--
			}
			read = append(read, fmt.Sprintf("%s: %s, %d more", by, state, listed))
		}
		s := source.Mapped(objects, func(obj configMap) []kube.Key {
			look("mapped "+obj.Data["to"], obj.Name)
			return nil
		}, predicate.Func(func(before, after configMap) bool {
			name := "c"
			if after == nil {
				name = before.Name
			}
			look("predicate", name)
			return true
		}))
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := strings.Join(read, "; "); got != strings.Join(want, "; ") {
				t.Errorf("%s: it read %q, want %q", when, got, want)
			}
			read = nil
		}
		_, stop := start(t, s)
		expect("listed", "predicate: 1, 0 more", "mapped 1: 1, 0 more")
		server.Put(pointing("c", "2"))
		expect("updated", "predicate: 2, 0 more", "mapped 1: 2, 0 more", "mapped 2: 2, 0 more")
		server.DropWatches()
		server.Compact()
		time.Sleep(time.Minute)
		expect("after a relist")
		server.Delete(key("c"))
		expect("deleted", "predicate: gone, 0 more", "mapped 2: gone, 0 more")
		stop()

		// The same while the informer announces the existing objects to a new subscription.
		server.Put(pointing("c", "3"))
		leave := objects.Join(t.Context())
		defer leave()
		synctest.Wait()
		read = nil
		_, stop = start(t, s)
		defer stop()
		expect("subscribed", "predicate: 3, 0 more", "mapped 3: 3, 0 more")
	})
}

func readAll(t *testing.T, objects *informer.Informer[configMap]) {
	t.Helper()
	for _, err := range objects.List(informer.Query{}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// The functions of two informers read each other's informer.
func TestMappersReadEachOthersInformers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newServer(), newServer()
		first, second := newInformer(t, one), newInformer(t, two)
		count := func(objects *informer.Informer[configMap]) func(configMap) []kube.Key {
			return func(configMap) []kube.Key {
				readAll(t, objects)
				_ = objects.Health()
				return []kube.Key{key("x")}
			}
		}
		q1, stop1 := start(t, source.Mapped(first, count(second)))
		defer stop1()
		q2, stop2 := start(t, source.Mapped(second, count(first)))
		defer stop2()
		synctest.Wait()
		for i := range 50 {
			one.Put(pointing("c", fmt.Sprint(i)))
			two.Put(pointing("c", fmt.Sprint(i)))
		}
		synctest.Wait()
		if a, b := len(q1.take()), len(q2.take()); a != 50 || b != 50 {
			t.Errorf("%d and %d changes came through, want 50 each", a, b)
		}
	})
}

// The controller's queue accepts keys while the informer announces a change and a worker reads.
func TestMappedSharesInformerWithController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("a", ""), pointing("b", "a"))
		objects := newInformer(t, server)
		handled := &queue{}
		ctrl, err := controller.New(controller.Config[configMap]{
			Name: "test", Informer: objects, ResyncInterval: -1, Logger: slog.New(slog.DiscardHandler),
			Handler: func(ctx context.Context, obj configMap) error {
				readAll(t, objects)
				run, _ := controller.RunFrom(ctx)
				handled.note(kube.KeyOf(obj), run.Causes.String())
				return nil
			},
			Sources: []controller.Source{source.Mapped(objects, targets)},
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, ctrl.Run)
		synctest.Wait()
		handled.take()
		server.Put(pointing("b", "a b"))
		synctest.Wait()
		got := strings.Join(handled.take(), "; ")
		if !strings.Contains(got, "ns/a: mapped children: ns/b updated (spec)") || !strings.Contains(got, "ns/b: ") {
			t.Errorf("handled: %s", got)
		}
	})
}

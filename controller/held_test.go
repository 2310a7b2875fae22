package controller_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestDrainQueueHandlesHeldKeys checks that DrainQueue handles a key that waits until an informer shows the writes of
// its last run. It is handled when the informer shows them or after ConsistencyTimeout, if the drain time allows that.
func TestDrainQueueHandlesHeldKeys(t *testing.T) {
	for name, test := range map[string]struct {
		shows        time.Duration // delay until the informer shows the write; 0: never
		drainTimeout time.Duration
		want         int
	}{
		"shown":              {time.Second, time.Minute, 2},
		"not shown in time":  {0, time.Minute, 2},
		"no drain time left": {0, time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(kube.Selection{})
				runs := 0
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					if runs++; runs > 1 {
						return nil
					}
					return w.create(ctx, "parts", "Part", "p")
				})
				c.Reads = []informer.Any{parts}
				c.Runs.DrainQueue, c.Runs.DrainTimeout = true, test.drainTimeout
				w.HoldWatches("parts")
				w.put("widgets", "a", 1)
				ctrl, err := controller.New(c)
				if err != nil {
					t.Fatal(err)
				}
				stop := start(t, ctrl)
				synctest.Wait()
				w.put("widgets", "a", 2)
				synctest.Wait()
				if s := ctrl.Stats(); s.Held != 1 || runs != 1 {
					t.Fatalf("%d runs, %+v: want a key that is held", runs, s)
				}
				if test.shows > 0 {
					time.AfterFunc(test.shows, func() { w.ReleaseWatches("parts") })
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if runs != test.want {
					t.Errorf("%d runs, want %d", runs, test.want)
				}
			})
		})
	}
}

// TestReplacementOfStuckHandlerUsesItsGroup checks that the worker that replaces a stuck one works in the same
// namespace, although the stuck worker has used up the limit of that namespace.
func TestReplacementOfStuckHandlerUsesItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		runs := &journal{}
		c := config(newServer("stuck"), func(_ context.Context, obj configMap) error {
			if obj.Name == "stuck" {
				<-block
			}
			runs.add("%s", obj.Name)
			return nil
		})
		server := newServer("stuck")
		c.Retriever = server
		c.Workers, c.Queue.GroupLimit, c.Runs.StuckAfter = 2, 1, time.Minute
		ctrl := newController(t, c)
		start(t, ctrl)
		time.Sleep(time.Second)
		for n := range 3 {
			server.Put(object(fmt.Sprint("other", n), "1"))
		}
		time.Sleep(5 * time.Minute)
		got := runs.take()
		slices.Sort(got)
		if !slices.Equal(got, []string{"other0", "other1", "other2"}) {
			t.Errorf("beside a stuck handler these were handled: %v", got)
		}
		close(block)
		synctest.Wait()
		if s := ctrl.Stats(); s.Processing != 0 || s.Ready != 0 {
			t.Errorf("when it has returned: %+v", s)
		}
	})
}

// TestLateReplacementOfStuckHandlerUsesItsGroup checks that a worker that was replaced late, because too many
// handlers were stuck, stops counting against the limit of its group.
func TestLateReplacementOfStuckHandlerUsesItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		release := map[string]chan struct{}{}
		server := newServer()
		c := config(server, func(_ context.Context, obj configMap) error {
			if block := release[obj.Namespace]; block != nil && obj.Name == "stuck" {
				<-block
			}
			runs.add("%s/%s", obj.Namespace, obj.Name)
			return nil
		})
		put := func(namespace, name string) {
			obj := object(name, "1")
			obj.Namespace = namespace
			server.Put(obj)
		}
		c.Workers, c.Queue.GroupLimit, c.Runs.StuckAfter = 1, 1, time.Minute
		for n := range 4 {
			release[fmt.Sprint("ns", n)] = make(chan struct{})
		}
		ctrl := newController(t, c)
		start(t, ctrl)
		time.Sleep(time.Second)
		for n := range 4 {
			put(fmt.Sprint("ns", n), "stuck")
			time.Sleep(5 * time.Minute)
		}
		put("ns3", "other")
		time.Sleep(5 * time.Minute)
		if got := runs.take(); len(got) != 0 {
			t.Errorf("beside as many stuck handlers as there may be workers, handled %q", got)
		}
		close(release["ns0"])
		time.Sleep(5 * time.Minute)
		if got := runs.take(); !slices.Equal(got, []string{"ns0/stuck", "ns3/other"}) {
			t.Errorf("when one of them has returned, handled %q", got)
		}
		for n := range 3 {
			close(release[fmt.Sprint("ns", n+1)])
		}
	})
}

// TestDrainQueueHandlesKeyOfStuckHandler checks that DrainQueue handles a key that was added again while its handler was
// stuck.
func TestDrainQueueHandlesKeyOfStuckHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		block := make(chan struct{})
		server := newServer("a")
		c := config(server, func(_ context.Context, obj configMap) error {
			if obj.Data["value"] == "1" {
				<-block
			}
			runs.add("%s", obj.Data["value"])
			return nil
		})
		c.Workers, c.Runs.StuckAfter, c.Runs.DrainQueue, c.Runs.DrainTimeout = 1, time.Minute, true, time.Hour
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(5 * time.Minute)
		server.Put(object("a", "2"))
		time.Sleep(time.Second)
		time.AfterFunc(time.Minute, func() { close(block) })
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := runs.take(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("handled %q, want both states", got)
		}
	})
}

// TestReplacedWorkerEndsDuringDrain checks that a worker that was replaced while its handler was stuck does
// not work in addition to its replacement during a drain. At most Workers handlers that are not stuck run at once.
func TestReplacedWorkerEndsDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		block := make(chan struct{})
		var working, most atomic.Int64
		server := newServer("stuck")
		c := config(server, func(_ context.Context, obj configMap) error {
			if obj.Name == "stuck" {
				<-block
				return nil
			}
			for n := working.Add(1); n > most.Load(); {
				most.Store(n)
			}
			time.Sleep(time.Minute)
			working.Add(-1)
			runs.add("%s", obj.Name)
			return nil
		})
		c.Workers, c.Runs.StuckAfter, c.Runs.DrainQueue, c.Runs.DrainTimeout = 1, 5*time.Minute, true, time.Hour
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(10 * time.Minute) // the worker is replaced
		for n := range 4 {
			server.Put(object(fmt.Sprint("o", n), "1"))
		}
		time.Sleep(time.Second)
		time.AfterFunc(30*time.Second, func() { close(block) })
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := runs.take(); len(got) != 4 || most.Load() > 1 {
			t.Errorf("handled %q, up to %d at once; want four, one at a time", got, most.Load())
		}
	})
}

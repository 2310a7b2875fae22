package controller_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// TestContract03_FirstPassBoundsQueue checks that the first pass does not queue a large cluster as a
// whole. The queue would be larger than the cache.
func TestContract03_FirstPassBoundsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 5000
		server := newServer()
		for n := range objects {
			server.Put(object("o"+strconv.Itoa(n), "1"))
		}
		var runs atomic.Int64
		ctrl := newController(t, config(server, func(context.Context, configMap) error {
			runs.Add(1)
			time.Sleep(time.Millisecond)
			return nil
		}))
		start(t, ctrl)
		most := 0
		for runs.Load() < objects {
			time.Sleep(time.Millisecond)
			most = max(most, ctrl.Stats().Ready)
			if most == 0 {
				t.Fatal("nothing is queued")
			}
		}
		if most > 1024 {
			t.Errorf("%d keys were queued at a time", most)
		}
		time.Sleep(time.Minute)
		if n := runs.Load(); n != objects {
			t.Errorf("%d runs for %d objects", n, objects)
		}
	})
}

// TestContract03_ChangesRunBeforeFirstPass checks that an object that changes during the first pass is handled
// first, and that this counts as its first run.
func TestContract03_ChangesRunBeforeFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 3000
		server := newServer()
		for n := range objects {
			server.Put(object("o"+strconv.Itoa(n), "1"))
		}
		var runs journal
		c := config(server, func(_ context.Context, obj configMap) error {
			runs.add("%s=%s", obj.Name, obj.Data["value"])
			time.Sleep(time.Millisecond)
			return nil
		})
		c.Workers = 1
		start(t, newController(t, c))
		time.Sleep(100 * time.Millisecond)
		before := runs.take()
		waits := "" // an object that has not been handled yet
		for n := range objects {
			if waits = "o" + strconv.Itoa(n); !slices.Contains(before, waits+"=1") {
				break
			}
		}
		server.Put(object(waits, "2"))
		server.Put(object("new", "1"))
		time.Sleep(5 * time.Second)
		after := runs.take()
		if n := len(before) + len(after); n != objects+1 {
			t.Errorf("%d runs for %d objects", n, objects+1)
		}
		if early := after[:4]; !slices.Contains(early, "new=1") || !slices.Contains(early, waits+"=2") {
			t.Errorf("after %d runs, %s changed and a new object came; the next runs were %v", len(before), waits, early)
		}
	})
}

// TestFirstPassAndResyncsRespectPredicate checks that existing objects also pass through a predicate that selects
// objects.
func TestFirstPassAndResyncsRespectPredicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		c := config(newServer("mine", "other"), func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			return nil
		})
		c.Workers, c.ResyncInterval = 1, time.Minute
		c.Predicate = func(c informer.Change) bool { return c.Key.Name == "mine" }
		start(t, newController(t, c))
		time.Sleep(2*time.Minute + time.Second)
		if diff := cmp.Diff([]string{"mine", "mine", "mine"}, runs.take()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

// TestFirstPassEndsWithTerm checks that the first pass ends with its term, even if objects are left.
func TestFirstPassEndsWithTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		for n := range 5000 {
			server.Put(object("o"+strconv.Itoa(n), "1"))
		}
		block := make(chan struct{})
		stop := start(t, newController(t, config(server, func(ctx context.Context, _ configMap) error {
			select {
			case <-block:
			case <-ctx.Done():
			}
			return controller.Terminal(context.Canceled)
		})))
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 25*time.Second+time.Second {
			t.Errorf("Run ended after %s", took)
		}
		close(block)
	})
}

// TestContract03_FirstPassContinuesUnderOverload checks that the first pass continues although the
// workers cannot keep up with changes.
func TestContract03_FirstPassContinuesUnderOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hot = 700
		cold := testlength.Count(200, 1000)
		server := newServer()
		for n := range cold {
			server.Put(object("cold"+strconv.Itoa(n), "1"))
		}
		handled := &journal{}
		c := config(server, func(_ context.Context, obj configMap) error {
			if strings.HasPrefix(obj.Name, "cold") {
				handled.add("%s", obj.Name)
			}
			time.Sleep(time.Second)
			return nil
		})
		start(t, newController(t, c))
		for range cold * 3 / 100 { // 700 changes a minute, 180 can be handled; overdue keys get a quarter
			for n := range hot {
				server.Put(object("hot"+strconv.Itoa(n), "1"))
			}
			time.Sleep(time.Minute)
		}
		if got := len(handled.take()); got != cold {
			t.Errorf("%d of %d objects that do not change were handled", got, cold)
		}
	})
}

// TestFirstPassContinuesBesideGroupAtLimit checks that a namespace at its GroupLimit with many slow keys does
// not keep workers idle while other namespaces have objects to handle.
func TestFirstPassContinuesBesideGroupAtLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const big, small = 3000, 60
		server := newServer()
		for n := range big + small {
			obj := object("o"+strconv.Itoa(n), "1")
			if n >= big {
				obj.Namespace = "small"
			}
			server.Put(obj)
		}
		var handled atomic.Int64
		c := config(server, func(_ context.Context, obj configMap) error {
			if obj.Namespace == "small" {
				handled.Add(1)
				return nil
			}
			time.Sleep(10 * time.Second)
			return nil
		})
		c.Workers, c.Queue.GroupLimit = 4, 1
		start(t, newController(t, c))
		time.Sleep(time.Minute)
		if n := handled.Load(); n != small {
			t.Errorf("in a minute %d of %d objects of the other namespace were handled", n, small)
		}
	})
}

func TestLateListOfOptionalInformerIsHandledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lateServer := newServer()
		gone := apierrors.NewNotFound(corev1.Resource("configmaps"), "")
		lateServer.Fail("list", gone)
		lateServer.Fail("watch", gone)
		server := newServer()
		for n := range 2000 {
			server.Put(object("o"+strconv.Itoa(n), "1"))
			lateServer.Put(object("late"+strconv.Itoa(n), "1"))
		}
		inf, err := informer.New(informer.Config[configMap]{
			Retriever: informer.Combine[configMap](server, lateServer), Optional: true, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]int{}
		c := config(nil, func(_ context.Context, obj configMap) error {
			runs[obj.Name]++
			time.Sleep(20 * time.Millisecond)
			return nil
		})
		c.Retriever, c.Informer, c.Workers = nil, inf, 1
		start(t, newController(t, c))
		time.Sleep(10 * time.Second)
		lateServer.Fail("list", nil)
		lateServer.Fail("watch", nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		twice := 0
		for _, n := range runs {
			if n != 1 {
				twice++
			}
		}
		if len(runs) != 4000 || twice > 0 {
			t.Errorf("%d objects were handled, %d of them more than once", len(runs), twice)
		}
	})
}

// TestSlowFirstListIsLogged checks that a first list that takes long is logged. It is no failure, so nothing else is.
func TestSlowFirstListIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		listed := make(chan struct{})
		w.Hook(func(_ *http.Request, do func() *http.Response) (*http.Response, error) {
			<-listed
			return do(), nil
		})
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		c.Logger = logs.logger(slog.LevelInfo)
		w.run(c)
		time.Sleep(4 * time.Second)
		const line = "controller waits for its first list"
		if got := strings.Join(logs.take(), "\n"); strings.Contains(got, line) {
			t.Errorf("logged early: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := strings.Join(logs.take(), "\n"); !strings.Contains(got, line) {
			t.Errorf("logged only: %s", got)
		}
		close(listed)
		synctest.Wait()
	})
}

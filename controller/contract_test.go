package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// The tests of this file list the contracts of a controller. Contract 7 (a handler sees its own writes) is not part of
// them yet.

func TestContract01_RunsOfOneKeyNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"a", "b", "c", "d", "e", "f"}
		server := newServer(names...)
		var mu sync.Mutex
		busy := map[string]bool{}
		most := 0
		c := config(server, func(_ context.Context, obj configMap) error {
			mu.Lock()
			if busy[obj.Name] {
				t.Errorf("%s is handled twice at once", obj.Name)
			}
			busy[obj.Name] = true
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			delete(busy, obj.Name)
			mu.Unlock()
			return nil
		})
		c.Workers = 4
		start(t, newController(t, c))
		for i := range 200 {
			server.Put(object(names[i%len(names)], fmt.Sprint(i)))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != 4 {
			t.Errorf("at most %d keys were handled at once, want Workers, 4", most)
		}
	})
}

// TestContract02_NoLostWakeUp checks that the handler runs with an object's last state, whatever happens before: slow
// and failing handlers, panics, requeues, broken connections, compacted history, refused requests.
func TestContract02_NoLostWakeUp(t *testing.T) {
	for seed := range uint64(testlength.Count(25, 50)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { noLostWakeUp(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func noLostWakeUp(t *testing.T, random *rand.Rand) {
	t.Helper()
	var mu sync.Mutex // guards random and seen, which the handlers share
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	seen := map[string]string{}
	server := newServer("o0", "o1", "o2")
	var calm atomic.Bool
	c := config(server, func(_ context.Context, obj configMap) error {
		time.Sleep(time.Duration(roll(40)) * time.Millisecond)
		mu.Lock()
		seen[obj.Name] = obj.Data["value"]
		mu.Unlock()
		if calm.Load() {
			return nil
		}
		switch roll(6) {
		case 0:
			return errors.New("failed")
		case 1:
			panic("panicked")
		case 2:
			return controller.RequeueAfter(time.Duration(roll(100)) * time.Millisecond)
		case 3:
			return controller.Terminal(errors.New("for good"))
		}
		return nil
	})
	ctrl := newController(t, c)
	stop := start(t, ctrl)
	for i := range 100 {
		name := fmt.Sprintf("o%d", roll(5))
		switch roll(12) {
		case 0:
			server.DropWatches()
		case 1:
			server.Compact()
			server.DropWatches()
		case 2:
			verb := []string{"list", "watch"}[roll(2)]
			server.Fail(verb, errors.New("refused"))
			server.DropWatches()
			time.Sleep(time.Duration(roll(3000)) * time.Millisecond)
			server.Fail(verb, nil)
		case 3:
			if cache.Of(ctrl.Informer()).Has(key(name)) {
				server.Put(object(name, "about to go"))
				server.Delete(key(name))
			}
		case 4:
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			stop = start(t, ctrl)
		default:
			server.Put(object(name, fmt.Sprint(i)))
		}
		time.Sleep(time.Duration(roll(60)) * time.Millisecond)
	}
	// The last change of every object comes while handlers still fail and just after the watch was cut.
	server.Compact()
	server.DropWatches()
	for i := range 5 {
		server.Put(object(fmt.Sprintf("o%d", i), "last"))
	}
	synctest.Wait()
	calm.Store(true)
	time.Sleep(5 * time.Minute)
	mu.Lock()
	defer mu.Unlock()
	for i := range 5 {
		if name := fmt.Sprintf("o%d", i); seen[name] != "last" {
			t.Errorf("%s was last handled as %q", name, seen[name])
		}
	}
}

func TestContract03_ListedObjectsRunOnceThenAtEachResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, interval = 200, 10 * time.Minute
		var names []string
		for i := range objects {
			names = append(names, fmt.Sprintf("o%d", i))
		}
		var mu sync.Mutex
		runs := map[string][]time.Time{}
		c := config(newServer(names...), func(ctx context.Context, obj configMap) error {
			mu.Lock()
			defer mu.Unlock()
			runs[obj.Name] = append(runs[obj.Name], time.Now())
			if run, _ := controller.RunFrom(ctx); len(runs[obj.Name]) > 1 && run.Causes.String() != "resync" {
				t.Errorf("a later run of %s is caused by %s", obj.Name, run.Causes)
			}
			return nil
		})
		c.ResyncInterval = interval
		began := time.Now()
		start(t, newController(t, c))
		synctest.Wait()
		mu.Lock()
		for _, name := range names {
			if n := len(runs[name]); n != 1 {
				t.Errorf("after the start %s was handled %d times, want once", name, n)
			}
		}
		mu.Unlock()
		time.Sleep(5 * interval)
		mu.Lock()
		defer mu.Unlock()
		perMinute := map[int]int{}
		for name, times := range runs {
			for i := 1; i < len(times); i++ {
				gap, least := times[i].Sub(times[i-1]), interval/10*9
				if i == 1 {
					least = interval / 10
				}
				if gap < least || gap > interval {
					t.Errorf("%s: run %d came %s after the one before, want %s to %s", name, i, gap, least, interval)
				}
			}
			perMinute[int(times[1].Sub(began)/time.Minute)]++
		}
		for minute, n := range perMinute {
			if n > objects/4 {
				t.Errorf("%d of %d first resyncs fall into minute %d: they are not spread", n, objects, minute)
			}
		}
	})
}

func TestContract03_ChangesRunBeforeResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("o%d", i))
		}
		server := newServer(names...)
		var order journal
		c := config(server, func(_ context.Context, obj configMap) error {
			time.Sleep(100 * time.Millisecond)
			order.add("%s", obj.Name)
			return nil
		})
		c.Workers = 1
		start(t, newController(t, c))
		time.Sleep(time.Second) // the first pass takes five seconds
		server.Put(object("urgent", "1"))
		time.Sleep(time.Minute)
		if at := slices.Index(order.take(), "urgent"); at < 0 || at > 12 {
			t.Errorf("a change was handled as number %d, after what nobody waits for", at)
		}
	})
}

func TestContract03_NegativeResyncIntervalDisablesResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		c := config(newServer("a"), func(context.Context, configMap) error { runs.Add(1); return nil })
		c.ResyncInterval = -1
		start(t, newController(t, c))
		time.Sleep(24 * time.Hour)
		if n := runs.Load(); n != 1 {
			t.Errorf("handled %d times in a day, want once", n)
		}
	})
}

func TestContract03_DeletedObjectsAreNotResynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var runs journal
		c := config(server, nil)
		c.Reconciler = func(ctx context.Context, key kube.Key) error {
			run, _ := controller.RunFrom(ctx)
			runs.add("%s: %s", key, run.Causes)
			return nil
		}
		c.ResyncInterval = time.Minute
		ctrl := newController(t, c)
		start(t, ctrl)
		synctest.Wait()
		server.Delete(key("a"))
		time.Sleep(time.Hour)
		if diff := cmp.Diff([]string{"ns/a: listed", "ns/a: deleted"}, runs.take()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if s := ctrl.Stats(); s.Delayed != 0 || s.Ready != 0 {
			t.Errorf("the queue still knows of the object: %+v", s)
		}
	})
}

// TestContract04_SuccessResetsRetryCount exists because Kooper never resets the count: old failures consume the
// retries of later ones.
func TestContract04_SuccessResetsRetryCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		var attempts journal
		outcome := errors.New("failed")
		c := config(server, func(ctx context.Context, obj configMap) error {
			run, _ := controller.RunFrom(ctx)
			attempts.add("%s attempt %d", obj.Data["value"], run.Attempt)
			if run.Attempt == 2 {
				return nil
			}
			return outcome
		})
		c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 3}}
		start(t, newController(t, c))
		for i := 1; i <= 5; i++ {
			server.Put(object("a", fmt.Sprint(i)))
			time.Sleep(time.Minute)
			want := []string{fmt.Sprintf("%d attempt 0", i), fmt.Sprintf("%d attempt 1", i), fmt.Sprintf("%d attempt 2", i)}
			if got := attempts.take(); !slices.Equal(got, want) {
				t.Fatalf("change %d: %v, want %v", i, got, want)
			}
		}
	})
}

func TestContract04_RequeueResetsRetryCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts journal
		n := 0
		c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
			run, _ := controller.RunFrom(ctx)
			attempts.add("attempt %d: %s", run.Attempt, run.Causes)
			n++
			if n%2 == 1 {
				return errors.New("failed")
			}
			return controller.RequeueAfter(time.Hour, "the certificate expires")
		})
		start(t, newController(t, c))
		time.Sleep(time.Hour + time.Minute)
		want := []string{
			"attempt 0: listed", "attempt 1: retry 1 (error)",
			"attempt 0: requeue (the certificate expires)", "attempt 1: retry 1 (error)",
		}
		if diff := cmp.Diff(want, attempts.take()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestContract04_RetriesAreCountedAsFailures exists because Kooper counts a requeued failure as a success.
func TestContract04_RetriesAreCountedAsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newRecorder()
		c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
			if run, _ := controller.RunFrom(ctx); run.Attempt < 3 {
				return errors.New("failed")
			}
			return nil
		})
		c.Metrics = metrics
		start(t, newController(t, c))
		time.Sleep(time.Minute)
		outcomes, retries := metrics.snapshot()
		want := map[controller.Outcome]int{controller.OutcomeError: 3, controller.OutcomeSuccess: 1}
		if diff := cmp.Diff(want, outcomes); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if retries != 3 {
			t.Errorf("%d retries, want 3", retries)
		}
	})
}

func TestContract04_ContextsAreCancelledAfterDrainTime(t *testing.T) {
	for name, test := range map[string]struct {
		drain, want time.Duration
	}{
		"default":  {0, 25 * time.Second},
		"set":      {time.Minute, time.Minute},
		"negative": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cancelled time.Time
				var value any
				type contextKey struct{}
				c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
					value = ctx.Value(contextKey{})
					<-ctx.Done()
					cancelled = time.Now()
					return ctx.Err()
				})
				c.Runs.DrainTimeout = test.drain
				ctrl := newController(t, c)
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "from the caller"))
				done := make(chan error)
				go func() { done <- ctrl.Run(ctx) }() // waited for below
				time.Sleep(time.Hour)
				cancel()
				began := time.Now()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				if got := cancelled.Sub(began); got != test.want {
					t.Errorf("the handler was cancelled %s after the stop, want %s", got, test.want)
				}
				// Kooper runs handlers with context.Background.
				if value != "from the caller" {
					t.Errorf("the handler's context does not descend from Run's: its value is %v", value)
				}
			})
		})
	}
}

func TestContract04_HandlersFinishWithinDrainTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done journal
		server := newServer("a", "b")
		var ctrl *controller.Controller[configMap]
		c := config(server, func(ctx context.Context, obj configMap) error {
			time.Sleep(10 * time.Second)
			if _, found, _ := ctrl.Informer().Get(key("late")); !found {
				t.Error("a draining handler does not see the cache move on")
			}
			done.add("%s err=%v", obj.Name, ctx.Err())
			return nil
		})
		c.Workers = 1
		ctrl = newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(time.Second)
		stopped := make(chan struct{})
		go func() { _ = stop(); close(stopped) }() // waited for below
		time.Sleep(time.Second)
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "draining") {
			t.Errorf("Ready while draining: %v", err)
		}
		server.Put(object("late", "1"))
		<-stopped
		// The handler that was running has finished; the other key was not started.
		if got := done.take(); len(got) != 1 || !strings.HasSuffix(got[0], "err=<nil>") {
			t.Errorf("finished while draining: %v", got)
		}
	})
}

// TestContract05_RunReturnsAfterWorkersAndWatches exists because Kooper's Run returns at once and leaves its
// workers and its informer running.
func TestContract05_RunReturnsAfterWorkersAndWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		metrics := newRecorder()
		var ended atomic.Bool
		c := config(server, func(ctx context.Context, _ configMap) error {
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			ended.Store(true)
			return nil
		})
		c.Metrics = metrics
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, _ controller.Enqueue) error {
			<-ctx.Done()
			time.Sleep(27 * time.Second)
			return nil
		})}
		stop := start(t, newController(t, c))
		time.Sleep(time.Second)
		if n := metrics.observers(); n != 2 {
			t.Errorf("%d observers while it runs, want the controller's and its informer's", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if !ended.Load() {
			t.Error("Run returned before its handler")
		}
		if _, _, open := server.Counts(); open != 0 {
			t.Errorf("Run returned with %d open watches", open)
		}
		if n := metrics.observers(); n != 0 {
			t.Errorf("%d observers are left", n)
		}
	})
}

func TestContract05_RunStopsDuringFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Fail("list", errors.New("refused"))
		server.Fail("watch", errors.New("refused"))
		stop := start(t, newController(t, config(server, func(context.Context, configMap) error { return nil })))
		time.Sleep(time.Hour)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("Run took %s to stop", took)
		}
	})
}

// elector is a LeaderElector. The test grants and revokes its leadership.
type elector struct {
	terms chan chan struct{} // one channel for each term, closed to lose leadership
	ended journal
}

func (*elector) Ready() error { return nil }

func (e *elector) Run(ctx context.Context, work func(context.Context) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case lost := <-e.terms:
			held := leadership.New(nil, 100*time.Hour)
			term, cancel := leadership.With(ctx, held)
			over := make(chan struct{})
			go func() { // ends when the term is lost or over
				select {
				case <-lost:
					held.Lose(errors.New("the test takes it"))
				case <-over:
				}
			}()
			err := work(term)
			e.ended.add("term ended")
			close(over)
			held.Release()
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// TestContract06_LostLeadershipCancelsWorkAtOnce exists because Kooper's controllers continue to work after leadership
// is lost.
func TestContract06_LostLeadershipCancelsWorkAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen journal
		server := newServer("a")
		e := &elector{terms: make(chan chan struct{})}
		c := config(server, func(ctx context.Context, _ configMap) error {
			seen.add("begun")
			select {
			case <-ctx.Done():
				seen.add("cancelled: %v", context.Cause(ctx))
				return ctx.Err()
			case <-time.After(time.Hour):
				return nil
			}
		})
		c.LeaderElector = e
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, _ controller.Enqueue) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second) // must not delay the loss of leadership
			return nil
		})}
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(time.Second)
		if lists, watches, _ := server.Counts(); lists+watches > 0 {
			t.Error("a standby makes requests")
		}
		if err := ctrl.Ready(); err != nil {
			t.Errorf("a standby is not ready, so that no rolling update could finish: %v", err)
		}

		term := make(chan struct{})
		e.terms <- term
		time.Sleep(time.Second)
		lostAt := time.Now()
		close(term)
		synctest.Wait()
		want := []string{"begun", "cancelled: leadership lost: the test takes it"}
		if diff := cmp.Diff(want, seen.take()); diff != "" || !time.Now().Equal(lostAt) {
			t.Errorf("%s after the loss (-want +got):\n%s", time.Since(lostAt), diff)
		}
		server.Put(object("a", "2"))
		time.Sleep(time.Minute)
		if got := seen.take(); got != nil {
			t.Errorf("work after the loss: %v", got)
		}

		e.terms <- make(chan struct{}) // the same process leads again
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"begun"}, seen.take()); diff != "" {
			t.Errorf("in the second term (-want +got):\n%s", diff)
		}

		// A loss of leadership during the drain ends the drain.
		go func() { _ = stop() }() // waited for by the cleanup of start
		time.Sleep(time.Second)
		if got := seen.take(); got != nil {
			t.Errorf("an ordinary stop did not drain: %v", got)
		}
	})
}

func TestContract06_LossEndsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &elector{terms: make(chan chan struct{}, 1)}
		var cancelled time.Time
		c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
			<-ctx.Done()
			cancelled = time.Now()
			if !errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
				t.Errorf("cause: %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		c.LeaderElector = e
		term := make(chan struct{})
		e.terms <- term
		stop := start(t, newController(t, c))
		time.Sleep(time.Second)
		time.AfterFunc(5*time.Second, func() { close(term) })
		began := time.Now()
		_ = stop()
		if got := cancelled.Sub(began); got != 5*time.Second {
			t.Errorf("cancelled after %s, want at the loss, after 5s", got)
		}
	})
}

func TestContract06_LossIsCauseOfCancelledContext(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			e := &elector{terms: make(chan chan struct{}, 1)}
			c := config(newServer("a"), func(ctx context.Context, _ configMap) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), kube.ErrLeadershipLost) {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
				return ctx.Err()
			})
			c.LeaderElector = e
			c.Runs.DrainTimeout = -1
			term := make(chan struct{})
			e.terms <- term
			start(t, newController(t, c))
			synctest.Wait()
			close(term)
			synctest.Wait()
		})
	}
}

func TestContract08_PanicIsErrorOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		metrics := newRecorder()
		var healthy atomic.Int32
		c := config(newServer("bad", "good"), func(ctx context.Context, obj configMap) error {
			if obj.Name == "good" {
				healthy.Add(1)
				return nil
			}
			if run, _ := controller.RunFrom(ctx); run.Attempt < 4 {
				_ = strings.Repeat("x", -len(obj.Name)) // panics like users' code
			}
			return nil
		})
		c.Workers = 1
		c.Logger = logs.logger(slog.LevelWarn)
		c.Metrics = metrics
		start(t, newController(t, c))
		time.Sleep(time.Minute)
		outcomes, _ := metrics.snapshot()
		want := map[controller.Outcome]int{controller.OutcomePanic: 4, controller.OutcomeSuccess: 2}
		if diff := cmp.Diff(want, outcomes); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		all := strings.Join(logs.take(), "\n")
		if n := strings.Count(all, "contract_test.go"); n == 0 {
			t.Errorf("the stack of the panic is not logged:\n%s", all)
		}
		if n := strings.Count(all, "stack="); n != 1 {
			t.Errorf("the stack is logged %d times, want once", n)
		}
		if n := strings.Count(all, "will try again"); n != 1 {
			t.Errorf("the same failure is logged %d times within a second, want once:\n%s", n, all)
		}
	})
}

func TestContract09_MissingPermissionAffectsOneController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "",
			errors.New(`User "system:serviceaccount:ns:op" cannot list resource "configmaps"`))
		var logs journal
		refused := newServer("a")
		refused.Fail("list", forbidden)
		refused.Fail("watch", forbidden)
		var runs atomic.Int32
		handler := func(context.Context, configMap) error { runs.Add(1); return nil }
		c := config(refused, handler)
		c.Logger = logs.logger(slog.LevelWarn)
		bad, good := newController(t, c), newController(t, config(newServer("a"), handler))
		start(t, bad)
		start(t, good)
		time.Sleep(2 * time.Second)
		if err := good.Ready(); err != nil || runs.Load() != 1 {
			t.Errorf("the other controller: ready %v, %d runs", err, runs.Load())
		}
		err := bad.Ready()
		for _, part := range []string{`controller "test"`, "op", "list", "configmaps"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("Ready does not name %q: %v", part, err)
			}
		}
		if got := logs.take(); len(got) != 1 || !strings.Contains(got[0], "cannot list") {
			t.Errorf("logged: %q", got)
		}
		refused.Fail("list", nil)
		refused.Fail("watch", nil)
		time.Sleep(20 * time.Second)
		if err := bad.Ready(); err != nil || runs.Load() != 2 {
			t.Errorf("after the permission was granted: ready %v, %d runs", err, runs.Load())
		}
	})
}

func TestContract10_ReconnectEnqueuesNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a", "b", "c")
		var runs atomic.Int32
		start(t, newController(t, config(server, func(context.Context, configMap) error { runs.Add(1); return nil })))
		synctest.Wait()
		for i := range 10 {
			if i%2 == 1 {
				server.Compact()
			}
			server.DropWatches()
			time.Sleep(time.Minute)
		}
		if n := runs.Load(); n != 3 {
			t.Errorf("three objects that did not change were handled %d times", n)
		}
	})
}

// TestContract22_SilentWatchIsReportedAndReplaced checks that a watch that is open and sends nothing is reported,
// and that the changes that it missed are handled.
func TestContract22_SilentWatchIsReportedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			runs.add("%v", widget.Object["spec"])
			return nil
		})
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		runs.take()
		w.HoldWatches("widgets")
		w.put("widgets", "a", 2)
		var ready error
		for began := time.Now(); ready == nil && time.Since(began) < 15*time.Minute; time.Sleep(time.Second) {
			ready = ctrl.Ready()
		}
		if !errors.Is(ready, cache.ErrSilentWatch) {
			t.Errorf("Ready: %v, want it to name the silent watch", ready)
		}
		time.Sleep(time.Minute)
		if got := runs.take(); !slices.Equal(got, []string{"map[value:2]"}) {
			t.Errorf("behind a silent watch, handled %q", got)
		}
		w.ReleaseWatches("widgets")
		w.put("widgets", "a", 3)
		time.Sleep(5 * time.Minute)
		if err := ctrl.Ready(); err != nil {
			t.Errorf("when the watch speaks again: %v", err)
		}
	})
}

// TestContract24_PolledChangesAreHandled checks items that are listed, added, updated and removed. It also checks an
// object that was handled before the first successful poll and is in none of its items. Unchanged items and a failed
// poll must not cause runs.
func TestContract24_PolledChangesAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		var found atomic.Pointer[[]poll.Item]
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%s: %s", widget.GetName(), causesOf(ctx))
			return nil
		})
		c.Sources = []controller.Source{poll.New(poll.Config{
			Name: "registry", Interval: time.Minute, Jitter: -1,
			Poller: poll.List(func(context.Context) ([]poll.Item, error) {
				if items := found.Load(); items != nil {
					return *items, nil
				}
				return nil, errors.New("the registry is down")
			}),
		})}
		runsAfter := func(items ...poll.Item) []string {
			found.Store(&items)
			time.Sleep(5 * time.Minute)
			return runs.sorted()
		}
		image := func(name, version string) poll.Item {
			return poll.Item{ID: name, Version: version, Keys: []kube.Key{key(name)}}
		}
		w.put("widgets", "a", 1)
		w.put("widgets", "b", 1)
		w.run(c)
		time.Sleep(time.Second)
		runs.take()
		got := [][]string{runsAfter(image("a", "1")), runsAfter(image("a", "1"), image("b", "1")), runsAfter(image("a", "2"), image("b", "1"))}
		found.Store(nil) // the poll fails, which must not cause runs
		time.Sleep(5 * time.Minute)
		got = append(got, runs.take(), runsAfter(image("a", "2")))
		want := [][]string{
			{"a: registry: listed (a)", "b: registry: triggered (the first poll has succeeded)"}, {"b: registry: added (b)"}, {"a: registry: updated (a)"}, nil, {"b: registry: deleted (b)"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// tracer is a middleware.Tracer, and its only Span.
type tracer struct{ journal }

func (tr *tracer) Start(ctx context.Context, run controller.RunRecord, _ kube.Object) (context.Context, middleware.Span) {
	tr.add("run of %s: %s, waited %s", run.Key, run.Causes, run.Wait.Round(time.Millisecond))
	return ctx, tr
}

func (tr *tracer) TraceID() string { return "4bf92f35" }

func (tr *tracer) CallBegan(ctx context.Context, _ kube.Call) context.Context { return ctx }

func (tr *tracer) CallEnded(_ context.Context, call kube.Call) {
	tr.add("%s %s: %d", call.Verb, call.Key, call.Status)
}

func (tr *tracer) End(_ context.Context, err error) { tr.add("end: %v", err) }

// TestContract27_TraceHasRunCausesAndCalls checks that a trace has the run, its causes and its calls, and
// that the run's record has the trace.
func TestContract27_TraceHasRunCausesAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tr := &tracer{}
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			return errors.Join(w.create(ctx, "parts", "Part", "p"), errors.New("no luck"))
		})
		c.Handler = controller.Chain(c.Handler, middleware.Trace[unstructuredObject](tr))
		c.Retry.Every.Base = time.Hour
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		synctest.Wait()
		want := []string{"run of ns/a: listed, waited 0s", "create ns/p: 201", "end: no luck"}
		got := tr.take()
		if len(got) > 1 && strings.HasPrefix(got[1], "create ns/:") { // the response has the name of the created object
			got[1] = strings.Replace(got[1], "ns/", "ns/p", 1)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("traced (-want +got):\n%s", diff)
		}
		if id := ctrl.RecentRuns()[0].TraceID; id != "4bf92f35" {
			t.Errorf("the record of the run has the trace %q", id)
		}
	})
}

// TestContract16_NoisyNamespaceDelayIsBounded checks that keys are grouped by namespace by default, and that
// Config.Queue.GroupLimit bounds the number of workers of a group.
func TestContract16_NoisyNamespaceDelayIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		limit int
		waits time.Duration
	}{
		"turns":        {0, time.Second},
		"and a limit":  {1, 0},
		"of all there": {2, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				s.handler(func(context.Context, unstructuredObject) error { time.Sleep(time.Second); return nil })
				s.config.Workers, s.config.Queue.GroupLimit = 2, test.limit
				s.open()
				for i := range 200 {
					s.siteIn("noisy", fmt.Sprint("site-", i), 1)
				}
				time.Sleep(5*time.Second + time.Millisecond)
				s.site("web", 2)
				time.Sleep(10 * time.Second)
				runs := s.Explained(kube.Key{Namespace: "shop", Name: "web"}).Runs
				if len(runs) != 1 || runs[0].Wait > test.waits {
					t.Errorf("beside 200 keys of another namespace: %v, want one run after at most %s", runs, test.waits)
				}
			})
		})
	}
}

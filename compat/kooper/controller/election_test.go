package controller_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// election is a Lease whose requests can fail.
type election struct {
	configMaps
	fails atomic.Bool
	taken atomic.Bool // another process has written it, so updates of the replicas are conflicts
}

func newElection(objects ...runtime.Object) *election {
	cli := fake.NewClientset(objects...)
	e := &election{configMaps: configMaps{cli}}
	cli.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return e.fails.Load(), nil, errors.New("the API server is down")
	})
	cli.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return e.taken.Load(), nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "operator", nil)
	})
	return e
}

func (e *election) runner(t *testing.T) leaderelection.Runner {
	t.Helper()
	r, err := leaderelection.New("operator", "shop", &leaderelection.LockConfig{
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}, e.cli, log.Dummy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// holder returns the holder of the Lease.
func (e *election) holder(t *testing.T) string {
	t.Helper()
	return *e.lease(t).HolderIdentity
}

func (e *election) lease(t *testing.T) coordinationv1.LeaseSpec {
	t.Helper()
	lease, err := e.cli.CoordinationV1().Leases("shop").Get(t.Context(), "operator", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Spec
}

// replica is a controller under a Runner.
type replica struct {
	running atomic.Int32 // handlers
	stop    func()
	results chan error
}

// replica runs a controller under r. Its handlers run until their contexts end, and then for lasts.
func (e *election) replica(t *testing.T, name string, r leaderelection.Runner, lasts time.Duration) *replica {
	t.Helper()
	x := &replica{results: make(chan error, 1)}
	ctrl, err := controller.New(&controller.Config{
		Name: name, Retriever: e.configMaps, LeaderElector: r, Logger: log.Dummy,
		Handler: controller.HandlerFunc(func(ctx context.Context, _ runtime.Object) error {
			x.running.Add(1)
			defer x.running.Add(-1)
			<-ctx.Done()
			<-time.After(lasts)
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	x.stop = cancel
	go func() { x.results <- ctrl.Run(ctx) }() // waited for by the cleanup
	t.Cleanup(func() {
		cancel()
		t.Logf("Run returned %v", <-x.results)
	})
	return x
}

// ended checks that Run has returned an error that contains want; "": no error.
func (x *replica) ended(t *testing.T, want string) {
	t.Helper()
	select {
	case err := <-x.results:
		x.results <- err // for the next call
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Run returned %v, want %q", err, want)
		}
	default:
		t.Error("Run does not return")
	}
}

// wrapped is a Runner of a program around one of package leaderelection.
type wrapped struct{ leaderelection.Runner }

// runners are the Runners that a program may use.
func (e *election) runners(t *testing.T) map[string]leaderelection.Runner {
	t.Helper()
	return map[string]leaderelection.Runner{"own": e.runner(t), "wrapped": wrapped{e.runner(t)}}
}

// forEachRunner runs a test with the Runner of the package, and with one that wraps it.
func forEachRunner(t *testing.T, test func(t *testing.T, e *election, r leaderelection.Runner)) {
	t.Helper()
	for _, name := range []string{"own", "wrapped"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newElection(configMap("web", "0"))
				test(t, e, e.runners(t)[name])
			})
		})
	}
}

func TestLeaseIsReleasedAfterHandlersHaveEnded(t *testing.T) {
	t.Parallel()
	forEachRunner(t, func(t *testing.T, e *election, r leaderelection.Runner) {
		x := e.replica(t, "first", r, 2*time.Second)
		time.Sleep(time.Minute)
		if x.running.Load() != 1 || e.holder(t) == "" {
			t.Fatalf("%d handlers run, the holder is %q", x.running.Load(), e.holder(t))
		}
		x.stop()
		time.Sleep(26 * time.Second) // 25 s of drain, then the handler lasts 2 s
		if x.running.Load() != 1 || e.holder(t) == "" {
			t.Errorf("%d handlers run, the holder is %q: want it until they have ended", x.running.Load(), e.holder(t))
		}
		if since := time.Since(e.lease(t).RenewTime.Time); since > 3*time.Second {
			t.Errorf("while handlers run, the Lease was not renewed for %s", since)
		}
		time.Sleep(2 * time.Second)
		if x.ended(t, ""); e.holder(t) != "" {
			t.Errorf("the holder is %q", e.holder(t))
		}
	})
}

// client-go's elector would release the Lease at once, while the handler runs.
func TestLostLeaseEndsHandlersAndIsNotReleased(t *testing.T) {
	t.Parallel()
	forEachRunner(t, func(t *testing.T, e *election, r leaderelection.Runner) {
		x := e.replica(t, "first", r, 10*time.Second)
		time.Sleep(time.Minute)
		e.fails.Store(true)
		time.Sleep(13 * time.Second)
		e.fails.Store(false)
		if x.running.Load() != 1 || e.holder(t) == "" {
			t.Errorf("%d handlers run, the holder is %q, want one that ends, and the holder", x.running.Load(), e.holder(t))
		}
		time.Sleep(10 * time.Second)
		if x.ended(t, "leadership lost"); x.running.Load() != 0 || e.holder(t) == "" {
			t.Errorf("%d handlers run, the holder is %q", x.running.Load(), e.holder(t))
		}
	})
}

func TestLossDuringDrainEndsHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newElection(configMap("web", "0"))
		x := e.replica(t, "first", e.runner(t), 0)
		time.Sleep(time.Minute)
		x.stop()
		e.fails.Store(true)
		time.Sleep(13 * time.Second)
		x.ended(t, "leadership lost")
	})
}

// The handler may write at any time, so the Lease must expire.
func TestLeaseIsKeptWhileHandlerIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newElection(configMap("web", "0"))
		r := e.runner(t)
		x := e.replica(t, "first", r, time.Hour)
		time.Sleep(time.Minute)
		x.stop()
		time.Sleep(30 * time.Second)
		if x.ended(t, "still running"); e.holder(t) == "" {
			t.Error("the Lease was released")
		}
		if err := r.Run(func() error { return nil }); err != nil || e.holder(t) == "" {
			t.Errorf("another use of the Runner released the Lease (%v)", err)
		}
		time.Sleep(time.Hour)
	})
}

func TestAnotherHolderEndsHandlers(t *testing.T) {
	t.Parallel()
	forEachRunner(t, func(t *testing.T, e *election, r leaderelection.Runner) {
		x := e.replica(t, "first", r, 0)
		time.Sleep(time.Minute + time.Second) // between two renewals: the fake clientset would let one undo the next update
		other, now, seconds := "other", metav1.NowMicro(), int32(3600)
		lease, err := e.cli.CoordinationV1().Leases("shop").Get(t.Context(), "operator", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &other, RenewTime: &now, LeaseDurationSeconds: &seconds}
		if _, err := e.cli.CoordinationV1().Leases("shop").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		e.taken.Store(true)
		time.Sleep(20 * time.Second)
		if x.running.Load() != 0 || e.holder(t) != other {
			t.Errorf("%d handlers run, the holder is %q", x.running.Load(), e.holder(t))
		}
	})
}

// Kooper's function has no context, so it cannot be ended.
func TestRunnerReturnsWhenLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		end, ended := make(chan struct{}), make(chan error, 1)
		r := e.runner(t)
		go func() {
			ended <- r.Run(func() error { <-end; return nil })
		}()
		time.Sleep(time.Minute)
		e.fails.Store(true)
		time.Sleep(15 * time.Second)
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "leadership lost") {
				t.Errorf("Run returned %v, want leadership lost", err)
			}
		default:
			t.Error("Run does not return")
		}
		e.fails.Store(false)
		// Another use of the Runner does not release the Lease while the function runs.
		if err := r.Run(func() error { return nil }); err != nil || e.holder(t) == "" {
			t.Errorf("Run returned %v, the holder is %q", err, e.holder(t))
		}
		close(end)
		synctest.Wait()
		want := errors.New("of the function")
		if err := r.Run(func() error { return want }); !errors.Is(err, want) || e.holder(t) != "" {
			t.Errorf("Run returned %v, the holder is %q", err, e.holder(t))
		}
	})
}

func TestRunnerOfTwoControllers(t *testing.T) {
	t.Parallel()
	forEachRunner(t, func(t *testing.T, e *election, r leaderelection.Runner) {
		first, second := e.replica(t, "first", r, 0), e.replica(t, "second", r, 0)
		time.Sleep(time.Minute)
		if first.running.Load() != 1 || second.running.Load() != 1 {
			t.Errorf("%d and %d handlers run, want 1 and 1", first.running.Load(), second.running.Load())
		}
		first.stop()
		time.Sleep(time.Minute)
		if first.ended(t, ""); second.running.Load() != 1 || e.holder(t) == "" {
			t.Errorf("after the end of one, %d handlers run, the holder is %q", second.running.Load(), e.holder(t))
		}
		second.stop()
		time.Sleep(time.Minute)
		if second.ended(t, ""); e.holder(t) != "" {
			t.Errorf("after the end of both, the holder is %q", e.holder(t))
		}
	})
}

// If the API server is down at the end, Run gives up, and the Lease expires.
func TestReleaseThatFailsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		x := e.replica(t, "first", e.runner(t), 0)
		time.Sleep(time.Minute)
		e.fails.Store(true)
		x.stop()
		time.Sleep(11 * time.Second)
		x.ended(t, "")
	})
}

func TestStandbyStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newElection(configMap("web", "0"))
		first, second := e.replica(t, "first", e.runner(t), 0), e.replica(t, "second", e.runner(t), 0)
		time.Sleep(time.Minute)
		holder, standby := e.holder(t), first
		if first.running.Load() == 1 {
			standby = second
		}
		if first.running.Load()+second.running.Load() != 1 {
			t.Errorf("%d and %d handlers run, want one", first.running.Load(), second.running.Load())
		}
		standby.stop()
		time.Sleep(time.Second)
		if standby.ended(t, ""); e.holder(t) != holder {
			t.Errorf("the holder is %q, want %q", e.holder(t), holder)
		}
		// It has nothing to release, so it does not need the API server.
		third := e.replica(t, "third", e.runner(t), 0)
		time.Sleep(time.Minute)
		e.fails.Store(true)
		third.stop()
		time.Sleep(time.Second)
		third.ended(t, "")
		e.fails.Store(false)
	})
}

func TestNewReportsInvalidElection(t *testing.T) {
	t.Parallel()
	cli := fake.NewClientset()
	times := &leaderelection.LockConfig{LeaseDuration: time.Second, RenewDeadline: time.Minute, RetryPeriod: time.Second}
	for name, create := range map[string]func() (leaderelection.Runner, error){
		"no key":       func() (leaderelection.Runner, error) { return leaderelection.NewDefault("", "shop", cli, log.Dummy) },
		"no namespace": func() (leaderelection.Runner, error) { return leaderelection.NewDefault("a", "", cli, log.Dummy) },
		"no client":    func() (leaderelection.Runner, error) { return leaderelection.NewDefault("a", "shop", nil, log.Dummy) },
		"no Logger":    func() (leaderelection.Runner, error) { return leaderelection.NewDefault("a", "shop", cli, nil) },
		"bad times":    func() (leaderelection.Runner, error) { return leaderelection.New("a", "shop", times, cli, log.Dummy) },
	} {
		if _, err := create(); err == nil {
			t.Errorf("%s: New returned no error", name)
		}
	}
}

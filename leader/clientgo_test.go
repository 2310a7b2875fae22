package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// runClientGo runs client-go's elector, as controller-runtime does, until stop is called. It releases the lease at the
// end if release is true.
func runClientGo(t *testing.T, c *client, release bool, work func(ctx context.Context)) (stop func()) {
	t.Helper()
	cluster := connect(t, c)
	config := cluster.RESTConfig()
	config.ContentType = "application/json" // the server supports no other
	typed, err := coordinationv1client.NewForConfigAndClient(config, cluster.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "prod", Name: "printer"},
			Client:     typed,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.name},
		},
		LeaseDuration: leadership.DefaultLeaseDuration, RenewDeadline: leadership.DefaultRenewDeadline, RetryPeriod: leadership.DefaultRetryPeriod,
		ReleaseOnCancel: release,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: work, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }() // waited for by stop
	return func() { cancel(); <-ended }
}

// A rolling update replaces a process with client-go's elector by one with an Elector, and another one back. The lease
// passes on at once after a release, and after a LeaseDuration otherwise. Two processes never lead.
func TestRollingUpdateFromClientGo(t *testing.T) {
	t.Parallel()
	const retry = leadership.DefaultRetryPeriod * 22 / 10
	for name, tt := range map[string]struct {
		release         bool
		atLeast, atMost time.Duration
	}{
		"with a release":    {release: true, atMost: retry},
		"without a release": {atLeast: leadership.DefaultLeaseDuration, atMost: leadership.DefaultLeaseDuration + 2*retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				work, active := alone(t, s)
				led := map[string]time.Duration{}
				ledBy := func(name string) func(ctx context.Context) error {
					return func(ctx context.Context) error {
						led[name] = time.Since(s.start)
						return work(ctx)
					}
				}
				clientGo := func(name string) (stop func()) {
					return runClientGo(t, s.client(name), tt.release, func(ctx context.Context) { _ = ledBy(name)(ctx) })
				}
				handedOver := func(from, to string, atLeast, atMost time.Duration) {
					t.Helper()
					if took := led[to] - s.last(from).At; s.holder() != to || active.Load() != 1 || took < atLeast || took > atMost {
						t.Errorf("the holder is %q, %d electors lead, and %s leads %s after the last write of %s, want %s to %s",
							s.holder(), active.Load(), to, took, from, atLeast, atMost)
					}
				}
				stopOld := clientGo("old")
				pass(10 * time.Second)
				e := newTestElector(t, s.client("new"))
				r := run(t, e, ledBy("new"))
				pass(time.Minute)
				if got := e.Status(); got.state != stateStandby || got.Leader != "old" {
					t.Errorf("while client-go's elector leads, the status is %+v", got)
				}
				stopOld()
				pass(time.Minute)
				handedOver("old", "new", tt.atLeast, tt.atMost)
				if transitions := *s.read().Spec.LeaseTransitions; transitions != 2 {
					t.Errorf("leaseTransitions is %d, want 2", transitions)
				}

				stopBack := clientGo("back")
				pass(time.Minute)
				r.stopWithoutError(t)
				pass(time.Minute)
				handedOver("new", "back", 0, retry)
				stopBack()
				synctest.Wait()
			})
		})
	}
}

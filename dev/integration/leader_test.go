package integration

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

var _ controller.LeaderElector = (*leader.Elector)(nil)

// leaseDuration is long enough that no lease is lost on a slow machine, and short enough to wait for its expiry.
const leaseDuration = 15 * time.Second

func (e env) newElector(cluster *kube.Cluster, identity string) *leader.Elector {
	e.Helper()
	// A Lease without a holder is acquired at once, a missing one after a LeaseDuration.
	_, err := e.clients.CoordinationV1().Leases(e.namespace).Create(e.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		e.Fatal(err)
	}
	return must(leader.New(leader.Config{
		Cluster: cluster, Namespace: e.namespace, Name: "lease", Identity: identity,
		LeaseDuration: leaseDuration, RenewDeadline: 12 * time.Second, RetryPeriod: 200 * time.Millisecond,
	}))(e.T)
}

func (e env) lease() *coordinationv1.Lease {
	e.Helper()
	return must(e.clients.CoordinationV1().Leases(e.namespace).Get(e.Context(), "lease", metav1.GetOptions{}))(e.T)
}

func (e env) holder() string {
	if holder := e.lease().Spec.HolderIdentity; holder != nil {
		return *holder
	}
	return ""
}

// replica is one of several controllers with one leader. Its work is cancelled if it has not ended within drain.
func (e env) replica(identity string, drain time.Duration, handle func(ctx context.Context, m *corev1.ConfigMap) error) (ctrl *controller.Controller[*corev1.ConfigMap], stop func()) {
	e.Helper()
	cluster := connect(e.T, local.RESTConfig())
	return run(e.T, controller.Config[*corev1.ConfigMap]{
		Name: identity, LeaderElector: e.newElector(cluster, identity),
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
		Handler:   handle,
		Runs:      controller.RunsConfig{DrainTimeout: drain},
	})
}

func TestContract05_LeaseIsReleasedAfterWork(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	begun, finish := make(chan struct{}), make(chan struct{})
	var first, second seen
	_, stopFirst := e.replica("first", 10*leaseDuration, func(_ context.Context, m *corev1.ConfigMap) error {
		close(begun)
		<-finish
		if got := e.holder(); got != "first" { //nolint:contextcheck // a test's environment has the test's context
			t.Errorf("the holder is %q while first still works", got)
		}
		first.add(m.Name, m.Data["value"])
		return nil
	})
	<-begun
	standby, _ := e.replica("second", 10*leaseDuration, func(_ context.Context, m *corev1.ConfigMap) error {
		second.add(m.Name, m.Data["value"])
		return nil
	})
	eventually(t, func() string {
		if p := standby.Stats().Phase; p != controller.PhaseStandby {
			return "second is " + string(p)
		}
		// It is a standby until it has read the lease, and then ready.
		if err := standby.Ready(); err != nil {
			return "a standby is not ready: " + err.Error()
		}
		return ""
	})
	stopped := make(chan struct{})
	go func() { stopFirst(); close(stopped) }() // waited for below
	// Longer than the lease lasts without renewal: it is renewed while work drains.
	time.AfterFunc(leaseDuration+leaseDuration/3, func() {
		if n := second.count(); n != 0 {
			t.Error("second worked before first had ended")
		}
		close(finish)
	})
	<-stopped
	if got := e.holder(); got == "first" {
		t.Error("first has ended, but has not released the lease")
	}
	eventually(t, func() string { return second.lacks(map[string]string{"a": "1"}) })
	if n := first.count(); n != 1 {
		t.Errorf("first handled %d times", n)
	}
}

// Another client takes the lease: work is cancelled, and the elector becomes a candidate again.
func TestContract06_StolenLeaseCancelsWork(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	cancelled := make(chan error, 1)
	begun := make(chan struct{}, 10)
	ctrl, _ := e.replica("victim", time.Second, func(ctx context.Context, _ *corev1.ConfigMap) error {
		begun <- struct{}{}
		<-ctx.Done()
		select {
		case cancelled <- context.Cause(ctx):
		default:
		}
		return ctx.Err()
	})
	<-begun
	thief := "thief"
	eventually(t, func() string {
		lease := e.lease()
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &thief, &now
		if _, err := e.clients.CoordinationV1().Leases(e.namespace).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			return err.Error() // a renewal came in between
		}
		return ""
	})
	if cause := <-cancelled; !errors.Is(cause, kube.ErrLeadershipLost) {
		t.Errorf("the handler's context ended because of %v", cause)
	}
	eventually(t, func() string {
		if p := ctrl.Stats().Phase; p != controller.PhaseStandby {
			return "after the loss the controller is " + string(p)
		}
		return ""
	})
	<-begun // the thief does not renew, so the victim leads again when the lease has expired
	if got := e.holder(); got != "victim" {
		t.Errorf("work continues, but the holder is %q", got)
	}
}

func TestSmokeForbiddenLeaseIsReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	user := "nobody-" + e.namespace
	elector := e.newElector(connect(t, must(local.User(t.Context(), user))(t)), "refused")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx, func(context.Context) error { return nil }) }() // waited for below
	eventually(t, func() string {
		if err := elector.Ready(); err == nil || !strings.Contains(err.Error(), user) || !strings.Contains(err.Error(), "leases") {
			return "the error of Ready does not contain user and resource"
		}
		return ""
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// One elector around several controllers: they begin together and end together.
func TestElectorWithSeveralControllers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	cluster := connect(t, local.RESTConfig())
	var s [2]seen
	var group [2]*controller.Controller[*corev1.ConfigMap]
	for i := range group {
		group[i] = must(controller.New(controller.Config[*corev1.ConfigMap]{
			Name:      []string{"one", "two"}[i],
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
			Handler: func(_ context.Context, m *corev1.ConfigMap) error {
				s[i].add(m.Name, m.Data["value"])
				return nil
			},
		}))(t)
	}
	elector := e.newElector(cluster, "group")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { // waited for below
		ended <- elector.Run(ctx, func(ctx context.Context) error {
			var running sync.WaitGroup
			for _, ctrl := range group {
				running.Go(func() { // waited for below
					if err := ctrl.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			running.Wait()
			return nil
		})
	}()
	want := map[string]string{"a": "1"}
	eventually(t, func() string { return s[0].lacks(want) + s[1].lacks(want) })
	// A standby process with controllers is ready.
	standby := e.newElector(cluster, "other group")
	standingBy := make(chan error)
	go func() { // waited for below
		standingBy <- standby.Run(ctx, func(context.Context) error { return errors.New("the other group works too") })
	}()
	other := must(controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "three", Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
	}))(t)
	eventually(t, func() string {
		if err := errors.Join(standby.ReadyWith(other), elector.ReadyWith(group[0], group[1])); err != nil {
			return err.Error()
		}
		return ""
	})
	cancel()
	if err := <-standingBy; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := e.holder(); got != "" {
		t.Errorf("the holder is still %q", got)
	}
}

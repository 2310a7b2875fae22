package leader

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/leader"
)

// A process with client-go's elector releases its Lease to an Elector, which releases it to client-go's elector again.
func TestRollingUpdateFromClientGo(t *testing.T) {
	t.Parallel()
	clients, namespace := newNamespace(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: election.LeaseName}}
	if _, err := clients.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leads := make(chan string, 10)
	next := func(want string) {
		t.Helper()
		select {
		case got := <-leads:
			if got != want {
				t.Fatalf("%s leads, want %s", got, want)
			}
		case <-time.After(election.StepTimeout):
			t.Fatalf("no process leads, want %s", want)
		}
	}
	clientGo := func(identity string) (stop func()) {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: election.LeaseName},
				Client:     clients.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: leadership.DefaultLeaseDuration, RenewDeadline: leadership.DefaultRenewDeadline, RetryPeriod: election.RetryPeriod,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- identity }, OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); elector.Run(ctx) }() // waited for by stop
		return func() { cancel(); <-ended }
	}

	stopOld := clientGo("old")
	defer stopOld()
	next("old")
	elector, err := leader.New(leader.Config{
		Cluster: clustertest.Connect(t, local.RESTConfig()), Namespace: namespace, Name: election.LeaseName, Identity: "new",
		RetryPeriod: election.RetryPeriod,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // waited for below
		ended <- elector.Run(ctx, func(ctx context.Context) error {
			leads <- "new"
			<-ctx.Done()
			return nil
		})
	}()
	clustertest.Eventually(t, func() string {
		if status := elector.Status(); status.Leader != "old" {
			return "the Elector does not see the leader"
		}
		return ""
	})
	stopOld()
	next("new")
	stopBack := clientGo("back")
	defer stopBack()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	next("back")
}

package leader

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/leader"
)

// After SIGKILL the other process leads as soon as the Lease has expired.
func TestKilledLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	e := election.New(t, local, election.Handlers)
	var leads election.Observation
	if !e.Until(election.StepTimeout, func() bool {
		leads = e.Observed()
		return e.Replicas[leads.By] != nil && leads.Writes >= election.Targets/2
	}) {
		e.Fatalf("no process leads and writes")
	}
	killed := e.Replicas[leads.By]
	delete(e.Replicas, leads.By)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !e.Until(election.StepTimeout, func() bool { now := e.Observed(); return now.By != leads.By && now.Writes >= election.Targets/2 }) {
		e.Fatalf("%s was killed, but no other process leads: %+v", leads.By, e.Observed())
	}
	if lateWrites := e.LateWrites(); len(lateWrites) > 0 {
		t.Errorf("late writes: %q", lateWrites)
	}
}

// A leader keeps its lease in an outage of the API server that is shorter than the lease, and loses it in a longer one.
func TestOutageOfAPIServer(t *testing.T) {
	for name, tt := range map[string]struct {
		duration, deadline, period time.Duration
		lost                       bool
	}{
		"shorter than the lease": {5 * time.Minute, 4 * time.Minute, time.Second, false},
		"longer than the lease":  {election.LeaseDuration, election.RenewDeadline, election.RetryPeriod, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := clustertest.Connect(t, local.RESTConfig())
			clients, err := kubernetes.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
			if err != nil {
				t.Fatal(err)
			}
			ns, err := clients.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: election.LeaseName}}
			leases := clients.CoordinationV1().Leases(ns.Name)
			if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			elector, err := leader.New(leader.Config{
				Cluster: cluster, Namespace: ns.Name, Name: election.LeaseName, Identity: "anna",
				LeaseDuration: tt.duration, RenewDeadline: tt.deadline, RetryPeriod: tt.period,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			terms := make(chan context.Context, 100)
			ended := make(chan error)
			go func() { // waited for below
				ended <- elector.Run(ctx, func(ctx context.Context) error {
					terms <- ctx
					<-ctx.Done()
					return nil
				})
			}()
			first := <-terms
			if err := local.Kill(); err != nil {
				t.Fatal(err)
			}
			if tt.lost {
				<-first.Done()
			}
			if err := local.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tt.lost {
				<-terms // it leads again
			}
			clustertest.Eventually(t, func() string {
				if s := elector.Status(); s.Err != nil || !s.Leading {
					return "the elector does not lead, or cannot renew"
				}
				return ""
			})
			if got := first.Err() != nil; got != tt.lost {
				t.Errorf("leadership was lost: %v, want %v", got, tt.lost)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

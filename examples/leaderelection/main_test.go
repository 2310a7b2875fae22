package main

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

func TestMain(m *testing.M) { exampletest.Main(m, localcluster.Config{}, nil) }

func TestTheOtherReplicaTakesOverWhenTheLeaderIsKilled(t *testing.T) {
	namespace := exampletest.Namespace(t)
	exampletest.CreateConfigMap(t, namespace, "first", nil)
	program := exampletest.Build(t)
	start := func(identity string) *exampletest.Process {
		return exampletest.Start(t, program, "--namespace", namespace, "--identity", identity,
			"--lease-duration", leaseDuration.String(), "--renew-deadline", "15s", "--retry-period", "200ms")
	}
	leader := start("anna")
	leader.Output.Wait(t, "anna handles "+namespace+"/first\n")
	other := start("bert")
	// The other one has seen whose lease it is.
	exampletest.Eventually(t, "anna holds the lease", func(ctx context.Context) (bool, string) {
		holder := holderOf(ctx, t, namespace)
		return holder == "anna", holder
	})

	if text := other.Output.String(); strings.Contains(text, "handles") {
		t.Errorf("bert worked while anna led:\n%s", text)
	}

	leader.Kill()
	last := leaseOf(t.Context(), t, namespace).Spec
	exampletest.CreateConfigMap(t, namespace, "second", nil)
	other.Output.Wait(t, "bert handles "+namespace+"/second\n")
	// The lease was anna's for its whole duration after she had renewed it last.
	taken := leaseOf(t.Context(), t, namespace).Spec
	if after := taken.AcquireTime.Sub(last.RenewTime.Time); *last.HolderIdentity == "anna" && after < leaseDuration {
		t.Errorf("bert took over %s after the leader's last renewal: her lease had not run out", after)
	}
	// A replica that is asked to end gives the lease away at once.
	other.Interrupt(t)
	if holder := holderOf(t.Context(), t, namespace); holder != "" {
		t.Errorf("after its holder ended in peace, the lease is still held by %q", holder)
	}
}

// leaseDuration is long enough for a machine that is busy with something else.
const leaseDuration = 20 * time.Second

func holderOf(ctx context.Context, t *testing.T, namespace string) string {
	t.Helper()
	if holder := leaseOf(ctx, t, namespace).Spec.HolderIdentity; holder != nil {
		return *holder
	}
	return ""
}

func leaseOf(ctx context.Context, t *testing.T, namespace string) *coordinationv1.Lease {
	t.Helper()
	client, err := coordinationv1client.NewForConfig(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	lease, err := client.Leases(namespace).Get(ctx, "leaderelection-example", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get the lease: %v", err)
	}
	return lease
}

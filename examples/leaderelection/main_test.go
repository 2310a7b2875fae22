package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReplicaTakesOverFromKilledLeader(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	namespace := exampletest.Namespace(t)
	exampletest.CreateConfigMap(t, namespace, "first", nil)
	createService(t, namespace, "first")
	program := exampletest.Build(t)
	start := func(identity string) *exampletest.Process {
		return exampletest.Start(t, program, "--namespace", namespace, "--identity", identity,
			"--lease-duration", leaseDuration.String(), "--renew-deadline", "9s", "--retry-period", "200ms")
	}
	leader := start("anna")
	leader.Output.Wait(t, "anna handles configmaps "+namespace+"/first\n")
	leader.Output.Wait(t, "anna handles services "+namespace+"/first\n")
	waitReady(t, leader)
	other := start("bert")
	waitReady(t, other) // a rolling update waits for this before it ends the leader
	exampletest.Eventually(t, "anna holds the lease", func(ctx context.Context) (bool, string) {
		holder := holderOf(ctx, t, namespace)
		return holder == "anna", holder
	})

	if text := other.Output.String(); strings.Contains(text, "handles") {
		t.Errorf("bert worked while anna was the leader:\n%s", text)
	}

	leader.Kill()
	last := leaseOf(t.Context(), t, namespace).Spec
	exampletest.CreateConfigMap(t, namespace, "second", nil)
	other.Output.Wait(t, "bert handles configmaps "+namespace+"/second\n")
	waitReady(t, other)
	// The lease must have been anna's for its whole duration after the last renewal.
	taken := leaseOf(t.Context(), t, namespace).Spec
	if after := taken.AcquireTime.Sub(last.RenewTime.Time); *last.HolderIdentity == "anna" && after < leaseDuration {
		t.Errorf("bert took over %s after the leader's last renewal, before the lease expired", after)
	}
	// A replica that is terminated must release the lease at once.
	other.Terminate(t)
	if holder := holderOf(t.Context(), t, namespace); holder != "" {
		t.Errorf("after a graceful shutdown, the lease is still held by %q", holder)
	}
}

// leaseDuration is long enough for a busy machine.
const leaseDuration = 12 * time.Second

// waitReady waits until the readiness probe of a replica succeeds.
func waitReady(t *testing.T, p *exampletest.Process) {
	t.Helper()
	address := regexp.MustCompile(`HTTP server started.* address=(\S+) `)
	p.Output.Until(t, "the address is logged", address.MatchString)
	url := "http://" + address.FindStringSubmatch(p.Output.String())[1] + "/readyz"
	exampletest.Eventually(t, "the replica is ready", func(ctx context.Context) (bool, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		defer http.DefaultClient.CloseIdleConnections()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusOK, fmt.Sprintf("%s: %s %v", resp.Status, text, err)
	})
}

func createService(t *testing.T, namespace, name string) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := exampletest.Core(t).Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a Service: %v", err)
	}
}

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

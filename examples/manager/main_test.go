package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestProbesMetricsLeaseAndSignal(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	namespace := exampletest.Namespace(t)
	program := exampletest.Start(t, exampletest.Build(t), "--listen=127.0.0.1:0", "--lease-namespace="+namespace,
		"--lease-duration=2s", "--renew-deadline=1s", "--retry-period=200ms")
	address := regexp.MustCompile(`HTTP server started.* address=(\S+) `)
	program.Output.Until(t, "the address is logged", address.MatchString)
	url := "http://" + address.FindStringSubmatch(program.Output.String())[1]
	program.Output.Until(t, "the controller has started", regexp.MustCompile(`runnable started.*runnable=pod-printer`).MatchString)
	exampletest.Eventually(t, "the program is ready", func(ctx context.Context) (bool, string) {
		status, body := get(ctx, t, url+"/readyz")
		return status == http.StatusOK, body
	})
	if status, body := get(t.Context(), t, url+"/livez"); status != http.StatusOK {
		t.Errorf("/livez returned %d: %s", status, body)
	}
	if _, body := get(t.Context(), t, url+"/metrics"); !strings.Contains(body, `controller="pod-printer"`) {
		t.Errorf("/metrics has no series of the controller:\n%s", body)
	}
	holder := func() string {
		client, err := coordinationv1client.NewForConfig(exampletest.RESTConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := client.Leases(namespace).Get(t.Context(), "pod-printer", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	if holder() == "" {
		t.Error("the lease has no holder while the controller runs")
	}
	program.Terminate(t)
	if got := holder(); got != "" {
		t.Errorf("after SIGTERM the lease is held by %s", got)
	}
}

func get(ctx context.Context, t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

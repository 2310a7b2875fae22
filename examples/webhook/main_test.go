package main

import (
	"context"
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

func TestMain(m *testing.M) { exampletest.Main(m, localcluster.Config{}, nil) }

func ingress(name, host string) *networkingv1.Ingress {
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.IngressSpec{DefaultBackend: &backend, Rules: []networkingv1.IngressRule{{Host: host}}},
	}
}

func TestHostsAreUnique(t *testing.T) {
	namespace := exampletest.Namespace(t)
	clients, err := networkingv1client.NewForConfig(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	ingresses := clients.Ingresses(namespace)
	if _, err := ingresses.Create(t.Context(), ingress("first", "a.example.com"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	address := exampletest.FreeAddress(t)
	program := exampletest.Start(t, exampletest.Build(t), "--namespace", namespace,
		"--webhook-listen", address, "--webhook-url", "https://"+address)
	program.Output.Wait(t, "HTTP server started")
	exampletest.Eventually(t, "the hook is called", func(ctx context.Context) (bool, string) {
		_, err := ingresses.Create(ctx, ingress("second", "a.example.com"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		want := `admission webhook "hosts.ingresses.example.com" denied the request: Ingress.networking.k8s.io "second" is invalid: spec.rules[0].host: Invalid value: "a.example.com": used by Ingress ` + namespace + "/first"
		return apierrors.IsInvalid(err) && err.Error() == want, fmt.Sprint(err)
	})
	if _, err := ingresses.Create(t.Context(), ingress("second", "b.example.com"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := ingresses.Update(t.Context(), ingress("first", "a.example.com"), metav1.UpdateOptions{}); err != nil {
		t.Error("an update of the same Ingress:", err)
	}
	program.Terminate(t)
}

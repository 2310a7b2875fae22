package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandlerOfTwoKinds(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	namespace := exampletest.Namespace(t)
	exampletest.CreateConfigMap(t, namespace, "settings", nil)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := exampletest.Core(t).Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a Service: %v", err)
	}

	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--namespace", namespace, "--resync", "200ms"}, out)
	})
	out.Wait(t, "configmaps: "+namespace+"/settings (listed")
	out.Wait(t, "services: "+namespace+"/web (listed") // a resync may join it
	resynced := "services: " + namespace + "/web (resync)\n"
	out.Until(t, "three resyncs of the Service", func(text string) bool { return strings.Count(text, resynced) >= 3 })
	stop()
	if text := out.String(); strings.Contains(text, "/settings (resync)") {
		t.Errorf("the ConfigMap was resynced:\n%s", text)
	}
}

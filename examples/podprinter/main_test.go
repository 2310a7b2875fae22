package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { exampletest.Main(m, localcluster.Config{}, nil) }

func TestPrintsExistingAndNewPods(t *testing.T) {
	exampletest.AnyCluster(t, simulation.Config{WithoutControllers: true})
	namespace := exampletest.Namespace(t)
	createPod(t, namespace, "early")
	printer := exampletest.Start(t, exampletest.Build(t))
	printer.Output.Wait(t, namespace+"/early is Pending\n")
	createPod(t, namespace, "late")
	printer.Output.Wait(t, namespace+"/late is Pending\n")
	printer.Terminate(t)
}

func createPod(t *testing.T, namespace, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	if _, err := exampletest.Core(t).Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create Pod %s/%s: %v", namespace, name, err)
	}
}

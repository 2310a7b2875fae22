package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

func TestMain(m *testing.M) { exampletest.Main(m, localcluster.Config{Controllers: true}, nil) }

func TestPodsRequireLabel(t *testing.T) {
	namespace := exampletest.Namespace(t)
	address := exampletest.FreeAddress(t)
	registrations, err := admissionregistrationv1client.NewForConfig(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // otherwise nobody could create Pods in the cluster
		if err := registrations.ValidatingWebhookConfigurations().Delete(context.WithoutCancel(t.Context()), "pod-printer", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	program := exampletest.Start(t, exampletest.Build(t), "--listen=127.0.0.1:0", "--lease-namespace="+namespace,
		"--webhook-listen="+address, "--webhook-url=https://"+address)
	create := func(ctx context.Context, labels map[string]string) error {
		_, err := exampletest.Core(t).Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	exampletest.Eventually(t, "the hook is called", func(ctx context.Context) (bool, string) {
		err := create(ctx, nil)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the label app is missing in Pod web"), fmt.Sprint(err)
	})
	if err := create(t.Context(), map[string]string{"app": "web"}); err != nil {
		t.Error(err)
	}
	program.Terminate(t)
}

// Command podprinter prints every Pod of the cluster, and again whenever one changes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config, or the Pod's own
	cluster := must(kube.Connect(must(clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig())))
	printer := must(controller.New(controller.Config[*corev1.Pod]{
		Name:      "pod-printer",
		Retriever: informer.Retrieve[*corev1.Pod](cluster),
		Handler: controller.HandlerFunc[*corev1.Pod](func(_ context.Context, pod *corev1.Pod) error {
			fmt.Printf("%s/%s is %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		}),
	}))
	exitOn(printer.Run(ctx))
}

func must[T any](value T, err error) T {
	exitOn(err)
	return value
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "podprinter:", err)
		os.Exit(1)
	}
}

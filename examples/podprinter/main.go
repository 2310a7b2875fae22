// Command podprinter prints every Pod of the cluster, and prints it again whenever it changes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)       // a second signal ends the process at once
	config, err := kube.LoadConfig("") // $KUBECONFIG, ~/.kube/config, or the Pod's own
	check(err)
	cluster, err := kube.Connect(config)
	check(err)
	printer, err := controller.New(controller.Config[*corev1.Pod]{
		Name:    "pod-printer",
		Cluster: cluster,
		Handler: func(_ context.Context, pod *corev1.Pod) error {
			fmt.Printf("%s/%s is %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		},
	})
	check(err)
	check(printer.Run(ctx))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "podprinter:", err)
		os.Exit(1)
	}
}

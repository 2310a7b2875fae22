package evenkeel_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A controller that prints every Pod, and prints it again whenever it changes.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context) error {
	config, err := kube.LoadConfig("") // $KUBECONFIG, ~/.kube/config, or the Pod's own
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(config)
	if err != nil {
		return err
	}
	printer, err := controller.New(controller.Config[*corev1.Pod]{
		Name:    "pod-printer",
		Cluster: cluster,
		Handler: func(_ context.Context, pod *corev1.Pod) error {
			fmt.Printf("%s/%s is %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		},
	})
	if err != nil {
		return err
	}
	return printer.Run(ctx)
}

// Command manager is podprinter with flags, probes, metrics, leader election and signals.
package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/controller"
)

func main() { evenkeel.Main("pod-printer", run) }

func run(ctx context.Context, p *evenkeel.Program) error {
	cluster, err := p.Connect()
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
	return p.Run(ctx, printer)
}

// Command small is podprinter with a webhook: it rejects Pods without the label app. Its flag --webhook-listen is the
// address on which it listens for the API server, and --webhook-url the URL of this address.
package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/webhook"
)

func main() { evenkeel.Main("pod-printer", run) }

func run(ctx context.Context, p *evenkeel.Program) error {
	cluster, err := p.Connect()
	if err != nil {
		return err
	}
	printer, err := evenkeel.New(evenkeel.Config[*corev1.Pod]{
		Name: "pod-printer", Cluster: cluster,
		Handle: func(_ context.Context, pod *corev1.Pod, _ *evenkeel.Run) error {
			fmt.Printf("%s/%s is %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		},
		Validate: func(_ context.Context, request *webhook.Request[*corev1.Pod]) error {
			if request.Object.Labels["app"] == "" {
				return fmt.Errorf("the label app is missing in Pod %s", request.Object.Name)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return p.Run(ctx, printer)
}

// Command smallest is the smallest useful controller on Even Keel: its binary is measured.
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

func main() {
	config, err := kube.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	cluster, err := kube.Connect(config)
	if err != nil {
		log.Fatal(err)
	}
	c, err := controller.New(controller.Config[*corev1.Pod]{
		Name:    "smallest",
		Cluster: cluster,
		Handler: func(_ context.Context, pod *corev1.Pod) error {
			fmt.Println(pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// Command small is podprinter with a webhook: it rejects Pods without the label app. Its arguments are the address on
// which it listens for the API server, such as 127.0.0.1:9443, and the namespace of its certificates.
package main

import (
	"context"
	"fmt"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/webhook"
)

func main() {
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
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "pod-printer"})
	check(err)
	server, err := webhook.New(webhook.Config{
		Cluster: cluster, Listen: os.Args[1],
		Hooks: []webhook.Hook{webhook.Validating(webhook.HookConfig{
			Name: "labels.pods.example.com",
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{Resources: []string{"pods"}},
			}},
		}, func(_ context.Context, request *webhook.Request[*corev1.Pod]) error {
			if request.Object.Labels["app"] == "" {
				return fmt.Errorf("the label app is missing in Pod %s", request.Object.Name)
			}
			return nil
		})},
		Certificates: &webhook.Certificates{
			Client: c, Secret: kube.Key{Namespace: os.Args[2], Name: "pod-printer-tls"}, Register: "pod-printer",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://" + os.Args[1])},
		},
	})
	check(err)
	runnables := []manager.Runnable{{Runner: printer}, {Runner: server, Group: manager.Servers}}
	m, err := manager.New(manager.Config{Runnables: runnables})
	check(err)
	check(m.Run(context.Background()))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "small:", err)
		os.Exit(1)
	}
}

// Command smallest is the smallest useful controller on Kooper: its binary is measured.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/spotahome/kooper/v2/controller"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	c, err := controller.New(&controller.Config{
		Name: "smallest",
		Retriever: controller.MustRetrieverFromListerWatcher(&cache.ListWatch{
			ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
				return pods.List(context.Background(), options)
			},
			WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(context.Background(), options)
			},
		}),
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			pod := obj.(*corev1.Pod)
			fmt.Println(pod.Namespace, pod.Name, pod.Status.Phase)
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

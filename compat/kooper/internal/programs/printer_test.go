// Package programs has programs that were written for Kooper v2. Only their import paths name this module: dev/kooper
// runs them, with the paths of Kooper, on Kooper 2.9.0.
package programs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// pods retrieves the Pods of all namespaces.
func pods(cli kubernetes.Interface) controller.Retriever {
	return controller.MustRetrieverFromListerWatcher(&cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			return cli.CoreV1().Pods("").List(context.Background(), options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			return cli.CoreV1().Pods("").Watch(context.Background(), options)
		},
	})
}

// Printer prints the name and the image of each Pod.
func Printer(ctx context.Context, cli kubernetes.Interface, show func(string)) error {
	ctrl, err := controller.New(&controller.Config{
		Name: "printer", Retriever: pods(cli), Logger: log.Dummy,
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			pod := obj.(*corev1.Pod)
			show(fmt.Sprintf("%s/%s %s", pod.Namespace, pod.Name, pod.Spec.Containers[0].Image))
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

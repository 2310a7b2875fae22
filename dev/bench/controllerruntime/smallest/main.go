// Command smallest is the smallest useful controller on controller-runtime: its binary is
// measured.
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type printer struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (p printer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := p.Get(ctx, request.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	fmt.Println(pod.Namespace, pod.Name, pod.Status.Phase)
	return ctrl.Result{}, nil
}

func main() {
	config, err := ctrl.GetConfig()
	if err != nil {
		log.Fatal(err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).
		Complete(printer{manager.GetClient()}); err != nil {
		log.Fatal(err)
	}
	if err := manager.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
}

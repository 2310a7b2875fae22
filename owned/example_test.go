package owned_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/source"
)

// ExampleSet_Apply is a handler with two children. The Deployment is applied when the ConfigMap is ready.
// report.Pending becomes the message of a condition in the owner's status.
func ExampleSet_Apply() {
	_ = func(children *owned.Set) controller.Handler[*appsv1.Deployment] {
		return func(ctx context.Context, owner *appsv1.Deployment) error {
			meta := metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name + "-proxy"}
			report, err := children.Apply(ctx, owner, slices.Concat(
				owned.Of(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"upstream": owner.Name}}),
				owned.Wave(1, &appsv1.Deployment{ObjectMeta: meta /* and its Spec */}),
			)...)
			if err != nil {
				return err
			}
			if report.RunAgain > 0 {
				return controller.RequeueAfter(report.RunAgain, "finalizers may be released")
			}
			return nil
		}
	}
}

// ExampleOwnerKeys enqueues an owner when one of its children changes, in any namespace.
func ExampleOwnerKeys() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	owners := kindserver.New[*appsv1.Deployment](apitest.Deployments(), true)
	server := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
	configs, err := informer.New(informer.Config[*corev1.ConfigMap]{Name: "configs", Retriever: server, Logger: logger})
	if err != nil {
		fmt.Println(err)
		return
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "proxies", Name: "web", Labels: map[string]string{owned.LabelSet: "proxy"},
		Annotations: map[string]string{"evenkeel.dev/owner": "shop/web"},
	}}
	then := []func(){
		func() { server.Put(child) },
		func() { server.Delete(kube.KeyOf(child)) },
		cancel,
	}
	ctrl, err := controller.New(controller.Config[*appsv1.Deployment]{
		Name:      "proxies",
		Retriever: owners,
		Handler: func(ctx context.Context, owner *appsv1.Deployment) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Printf("%s: %s\n", kube.KeyOf(owner), run.Causes)
			then[0]()
			then = then[1:]
			return nil
		},
		Sources: []controller.Source{source.Mapped(configs, owned.OwnerKeys[*corev1.ConfigMap]("proxy"))},
		Logger:  logger,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	owners.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop/web: listed
	// shop/web: mapped configs: proxies/web added by editor
	// shop/web: mapped configs: proxies/web deleted
}

package programs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

type retriever struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (r retriever) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.list(ctx, options)
}

func (r retriever) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.watch(ctx, options)
}

// Resources prints the replicas of Deployments and StatefulSets with one handler, in two controllers.
func Resources(ctx context.Context, cli kubernetes.Interface, show func(string)) error {
	handler := controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
		switch o := obj.(type) {
		case *appsv1.Deployment:
			show(fmt.Sprintf("Deployment %s: %d", o.Name, *o.Spec.Replicas))
		case *appsv1.StatefulSet:
			show(fmt.Sprintf("StatefulSet %s: %d", o.Name, *o.Spec.Replicas))
		default:
			return fmt.Errorf("a %T is not handled", obj)
		}
		return nil
	})
	retrievers := map[string]controller.Retriever{
		"deployments": retriever{
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return cli.AppsV1().Deployments("").List(ctx, options)
			},
			cli.AppsV1().Deployments("").Watch,
		},
		"statefulsets": retriever{
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return cli.AppsV1().StatefulSets("").List(ctx, options)
			},
			cli.AppsV1().StatefulSets("").Watch,
		},
	}
	var errs []error
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, retriever := range retrievers {
		ctrl, err := controller.New(&controller.Config{
			Name: name, Retriever: retriever, Handler: handler, Logger: log.Dummy,
		})
		if err != nil {
			return err
		}
		group.Go(func() {
			err := ctrl.Run(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

package programs

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// Finalizer is the finalizer of Operator.
const Finalizer = "example.com/mirror"

// Operator mirrors the Secrets that ConfigMaps with the label mirror name: it adds a finalizer to the ConfigMap and
// creates a Secret, and deletes the Secret when the ConfigMap is deleted.
func Operator(ctx context.Context, cli kubernetes.Interface, show func(string)) error {
	maps := cli.CoreV1().ConfigMaps("default")
	retriever := controller.MustRetrieverFromListerWatcher(&cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = "mirror"
			return maps.List(ctx, options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = "mirror"
			return maps.Watch(ctx, options)
		},
	})
	mirror := func(ctx context.Context, obj runtime.Object) error {
		m := obj.(*corev1.ConfigMap).DeepCopy()
		secrets := cli.CoreV1().Secrets(m.Namespace)
		has := slices.Contains(m.Finalizers, Finalizer)
		switch {
		case m.DeletionTimestamp != nil && has:
			if err := secrets.Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			m.Finalizers = slices.DeleteFunc(m.Finalizers, func(name string) bool { return name == Finalizer })
			show("removed " + m.Name)
			_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
			return err
		case m.DeletionTimestamp != nil:
			return nil
		case !has:
			m.Finalizers = append(m.Finalizers, Finalizer)
			_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
			return err // its update runs the handler again
		}
		if _, err := secrets.Get(ctx, m.Name, metav1.GetOptions{}); err == nil {
			return nil
		}
		_, err := secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: m.Name}, StringData: m.Data,
		}, metav1.CreateOptions{})
		if err == nil {
			show("created " + m.Name)
		}
		return err
	}
	ctrl, err := controller.New(&controller.Config{
		Name: "operator", Retriever: retriever, Handler: controller.HandlerFunc(mirror), Logger: log.Dummy,
		ProcessingJobRetries: 5,
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

package programs

import (
	"context"
	"errors"

	client "github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	"github.com/evenkeel-go/evenkeel/compat/kooper/metrics/prometheus"
)

// Metrics records metrics of the runs. Those of the Pod "broken" fail.
func Metrics(ctx context.Context, cli kubernetes.Interface, registry *client.Registry, show func(string)) error {
	ctrl, err := controller.New(&controller.Config{
		Name: "metrics", Retriever: pods(cli), Logger: log.Dummy,
		MetricsRecorder: prometheus.New(prometheus.Config{Registerer: registry}),
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			name := obj.(*corev1.Pod).Name
			defer show(name)
			if name == "broken" {
				return errors.New("it always fails")
			}
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

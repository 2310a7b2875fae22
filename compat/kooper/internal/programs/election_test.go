package programs

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// Election prints the Pods that this replica handles: only the leader does.
func Election(ctx context.Context, cli kubernetes.Interface, replica string, show func(string)) error {
	elector, err := leaderelection.New("programs", "default", &leaderelection.LockConfig{
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 500 * time.Millisecond,
	}, cli, log.Dummy)
	if err != nil {
		return err
	}
	ctrl, err := controller.New(&controller.Config{
		Name: "election", Retriever: pods(cli), Logger: log.Dummy, LeaderElector: elector,
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			show(replica + " " + obj.(*corev1.Pod).Name)
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

package programs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// Retries prints the runs of the Pod "broken", whose handler fails. It has no resync.
func Retries(ctx context.Context, cli kubernetes.Interface, retries int, show func(string)) error {
	var mu sync.Mutex
	runs := 0 // guarded by mu
	ctrl, err := controller.New(&controller.Config{
		Name: "retries", Retriever: pods(cli), Logger: log.Dummy,
		ProcessingJobRetries: retries, ConcurrentWorkers: 1, DisableResync: true,
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			if obj.(*corev1.Pod).Name != "broken" {
				return nil
			}
			mu.Lock()
			runs++
			run := runs
			mu.Unlock()
			show(fmt.Sprint("run ", run))
			return errors.New("it always fails")
		}),
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

// Resync prints each run. Every Pod runs again after interval.
func Resync(ctx context.Context, cli kubernetes.Interface, interval time.Duration, show func(string)) error {
	ctrl, err := controller.New(&controller.Config{
		Name: "resync", Retriever: pods(cli), Logger: log.Dummy, ResyncInterval: interval,
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			show(obj.(*corev1.Pod).Name)
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

// Concurrency prints how many handlers run when each of them begins. A handler ends when release returns.
func Concurrency(
	ctx context.Context, cli kubernetes.Interface, workers int, release func(), show func(string),
) error {
	var mu sync.Mutex
	running := 0 // guarded by mu
	ctrl, err := controller.New(&controller.Config{
		Name: "concurrency", Retriever: pods(cli), Logger: log.Dummy, ConcurrentWorkers: workers,
		Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error {
			mu.Lock()
			running++
			show(fmt.Sprint("running ", running))
			mu.Unlock()
			release()
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return ctrl.Run(ctx)
}

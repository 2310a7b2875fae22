// Command evenkeel is the measured controller on Even Keel.
package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// decodedBudget is what the program at its best keeps decoded at most, in bytes: all objects of the measurements of
// reads.
const decodedBudget = 256 << 20

func main() { probe.Main(start) }

func start(ctx context.Context, options probe.Options, failed chan<- error) (*probe.Reader, error) {
	cluster, err := kube.Connect(&rest.Config{
		Host:            options.Server,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, database.AddToScheme)
	if err != nil {
		return nil, err
	}
	if options.Best {
		if err := informer.SetDecodedBudget(cluster, decodedBudget); err != nil {
			return nil, err
		}
	}
	if options.Kind == probe.Databases {
		return run(ctx, cluster, options, failed, touchDatabase)
	}
	return run(ctx, cluster, options, failed, touchPod)
}

func touchPod(pod *corev1.Pod) int {
	return len(pod.Status.Phase) + len(pod.Spec.NodeName)
}

func touchDatabase(d *database.Database) int {
	return len(d.Status.Phase) + len(d.Spec.Engine)
}

func run[T kube.Object](
	ctx context.Context, cluster *kube.Cluster, options probe.Options, failed chan<- error, touch func(T) int,
) (*probe.Reader, error) {
	c, err := controller.New(controller.Config[T]{
		Name:    "bench",
		Cluster: cluster,
		Handler: func(_ context.Context, obj T) error {
			started := time.Now()
			options.Observer.Handled(started, obj.GetNamespace(), obj.GetName(), string(obj.GetUID()),
				obj.GetAnnotations(), touch(obj))
			return nil
		},
		Workers: options.Workers,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	go func() { failed <- c.Run(ctx) }() // ends with the process
	var cache reader[T] = c.Informer()
	if options.Best {
		cache = c.Informer().WithoutCopies()
	}
	return &probe.Reader{
		Get: func(key probe.Key) (int, error) {
			obj, found, err := cache.Get(kube.Key(key))
			if err != nil || !found {
				return 0, fmt.Errorf("get %v: found %t: %w", key, found, err)
			}
			return touch(obj), nil
		},
		List: func(namespace string) (int, error) { return list(cache, namespace, touch) },
	}, nil
}

// reader reads with copies or without.
type reader[T kube.Object] interface {
	Get(key kube.Key) (T, bool, error)
	List(query informer.Query) iter.Seq2[T, error]
}

// list reads all objects of a namespace.
func list[T kube.Object](cache reader[T], namespace string, touch func(T) int) (int, error) {
	count := 0
	for obj, err := range cache.List(informer.Query{Namespace: namespace}) {
		if err != nil {
			return count, err
		}
		touch(obj)
		count++
	}
	return count, nil
}

// Command leaderelection prints the ConfigMaps and the Services of a namespace, with a controller for each kind, but
// only in one of its replicas: the one that holds the lease. Start it twice and end one of them: the other takes over.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "leaderelection:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("leaderelection", flag.ExitOnError)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps, the Services and the lease")
	identity := flags.String("identity", "", "the name of this replica; default: a unique name")
	// By default the HTTP server has a free port, which is logged; in a Pod, use :8080.
	options := manager.Options{Listen: "127.0.0.1:0", LeaderElect: true, LeaseName: "leaderelection-example"}
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	name := *identity
	if name == "" {
		name = fmt.Sprint("process ", os.Getpid())
	}
	configMaps, err := newPrinter[*corev1.ConfigMap]("configmaps", cluster, name, *namespace)
	if err != nil {
		return err
	}
	services, err := newPrinter[*corev1.Service]("services", cluster, name, *namespace)
	if err != nil {
		return err
	}
	// region manager
	// SIGTERM stops the controllers: their handlers finish, and then the lease is released, so that the other replica
	// need not wait until it expires. When the lease is lost, handlers are cancelled at once, and the controllers run
	// again when this replica is the leader again. A standby replica is ready in /readyz.
	m, err := options.New(cluster, manager.Config{
		LeaderElection: &leader.Config{Namespace: *namespace, Identity: *identity},
		Runnables:      []manager.Runnable{{Runner: configMaps}, {Runner: services}},
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
	// endregion
}

// newPrinter returns a controller that prints the objects of one kind.
func newPrinter[T kube.Object](
	name string, cluster *kube.Cluster, replica, namespace string,
) (*controller.Controller[T], error) {
	return controller.New(controller.Config[T]{
		Name:      name,
		Retriever: informer.RetrieveSelected[T](cluster, kube.Selection{Namespaces: []string{namespace}}),
		Handler: func(_ context.Context, obj T) error {
			fmt.Printf("%s handles %s %s/%s\n", replica, name, obj.GetNamespace(), obj.GetName())
			return nil
		},
	})
}

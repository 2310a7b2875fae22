// Command leaderelection prints the ConfigMaps of a namespace, but only in one of its
// replicas: the one that holds the lease. Start it twice, end one, and see the other take
// over.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/leader"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leaderelection:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("leaderelection", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps and of the lease")
	identity := flags.String("identity", "", "the name of this replica; default: one of its own")
	leaseDuration := flags.Duration("lease-duration", leader.DefaultLeaseDuration, "the longest time without a leader after a crash")
	renewDeadline := flags.Duration("renew-deadline", leader.DefaultRenewDeadline, "how long the leader goes on without being able to renew")
	retryPeriod := flags.Duration("retry-period", leader.DefaultRetryPeriod, "the time between two tries to get or renew the lease")
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{
		Cluster:       cluster,
		Namespace:     *namespace,
		Name:          "leaderelection-example",
		Identity:      *identity,
		LeaseDuration: *leaseDuration,
		RenewDeadline: *renewDeadline,
		RetryPeriod:   *retryPeriod,
	})
	if err != nil {
		return err
	}
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name:          "leaderelection",
		Retriever:     informer.RetrieveSelected[*corev1.ConfigMap](cluster, informer.Selection{Namespaces: []string{*namespace}}),
		LeaderElector: elector,
		Handler: controller.HandlerFunc[*corev1.ConfigMap](func(_ context.Context, configMap *corev1.ConfigMap) error {
			fmt.Printf("%s handles %s/%s\n", elector.Status().Identity, configMap.Namespace, configMap.Name)
			return nil
		}),
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	// When ctx ends, Run lets handlers finish and then releases the lease, so that the
	// other replica need not wait for it to run out.
	return ctrl.Run(ctx)
}

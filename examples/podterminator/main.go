// Command podterminator is an operator: for each PodTerminator it ends a percentage of the selected Pods, once per
// period.
//
//	kubectl apply -f config/crd.yaml -f config/rbac.yaml
//	go run . &
//	kubectl apply -f config/sample.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/leader"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podterminator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("podterminator", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	namespaces := flags.String("namespaces", "", "the namespaces of the PodTerminators, separated by commas; default: all")
	elect := flags.Bool("leader-election", true, "work only while holding the lease "+operator.Name+", so that only one of several operators works")
	leaseNamespace := flags.String("leader-election-namespace", operator.Name, "the namespace of the lease; the default is that of config/rbac.yaml")
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig, v1alpha1.AddToScheme)
	if err != nil {
		return err
	}
	config := operator.Config{Logger: slog.Default()}
	if *namespaces != "" {
		config.Namespaces = strings.Split(*namespaces, ",")
	}
	if *elect {
		// Also with one replica: during a rolling update the old and the new one run at the same time.
		elector, err := leader.New(leader.Config{Cluster: cluster, Namespace: *leaseNamespace, Name: operator.Name})
		if err != nil {
			return err
		}
		config.LeaderElector = elector
	}
	op, err := operator.New(cluster, config)
	if err != nil {
		return err
	}
	return op.Run(ctx)
}

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
	"os"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/manager"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "podterminator:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("podterminator", flag.ExitOnError)
	// The lease is used also with one replica: during a rolling update the old and the new one run at the same time.
	// Its namespace is that of config/rbac.yaml.
	options := manager.Options{LeaderElect: true, LeaseName: operator.Name, LeaseNamespace: operator.Name}
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect(v1alpha1.AddToScheme)
	if err != nil {
		return err
	}
	op, err := operator.New(cluster, operator.Config{})
	if err != nil {
		return err
	}
	m, err := options.New(cluster, manager.Config{Runnables: []manager.Runnable{{Name: operator.Name, Runner: op}}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Command cache is a controller of Deployments that prints data from its caches: on which nodes their Pods are. It
// watches namespaces while they have the label example=cache, and an optional kind while the cluster serves it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cache:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cache", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	home := flags.String("namespace", "default", "the namespace that is always watched")
	_ = flags.Parse(args) // exits on an error
	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	o, err := newOperator(cluster, *home, out)
	if err != nil {
		return err
	}
	deployments, err := o.newDeployments()
	if err != nil {
		return err
	}
	namespaces, err := o.newNamespaces()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { // waited for below
		ended <- namespaces.Run(ctx)
		stop()
	}()
	err = deployments.Run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

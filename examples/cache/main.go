// Command cache is a controller of Deployments that prints data from its caches: on which nodes their Pods are. It
// watches namespaces while they have the label example=cache, and an optional kind while the cluster serves it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/evenkeel-go/evenkeel/manager"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cache:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cache", flag.ExitOnError)
	home := flags.String("namespace", "default", "the namespace that is always watched")
	var options manager.Options
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
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
	m, err := options.New(cluster,
		manager.Config{Runnables: []manager.Runnable{{Runner: deployments}, {Runner: namespaces}}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

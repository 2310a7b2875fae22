// Command localcluster builds the embedded Kubernetes cluster, where that has not
// been done yet, and becomes it: all arguments are the built command's.
//
//	go run ./cmd/localcluster --controllers --nodes 2
//	go run ./cmd/localcluster --help
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	binary, err := localcluster.Build(ctx, os.Stderr)
	stop()
	if err != nil {
		return err
	}
	// The same process from here on, so signals and the exit status need no
	// passing on.
	err = syscall.Exec(binary, append([]string{"localcluster"}, os.Args[1:]...), os.Environ())
	return fmt.Errorf("running %s: %w", binary, err)
}

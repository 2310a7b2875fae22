// Command localcluster builds the embedded Kubernetes cluster, where that has not
// been done yet, and becomes it: all arguments are the built command's.
//
//	go run ./cmd/localcluster --controllers --nodes 2
//	go run ./cmd/localcluster --help
//
// A supervisor (systemd, make, a script) should not start it by "go run" or "go
// tool": those pass SIGTERM on to nobody, and when they are killed, what they ran
// goes on. On Linux the cluster notices and ends; elsewhere it stays. Instead:
//
//	go build -o localcluster ./cmd/localcluster && exec ./localcluster
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
	fmt.Fprintln(os.Stderr, become(os.Args[1:]))
	os.Exit(1)
}

// become builds the cluster's binary and turns this process into it, so signals
// and the exit status need no passing on. It returns only if that failed.
func become(args []string) error {
	if err := endWithGoCommand(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	binary, err := localcluster.Build(ctx, os.Stderr)
	stop()
	if err != nil {
		return err
	}
	err = syscall.Exec(binary, append([]string{"localcluster"}, args...), os.Environ())
	return fmt.Errorf("running %s: %w", binary, err)
}

// Command localcluster builds the local Kubernetes cluster (the module localcluster), if it is not built yet, and
// executes it with all arguments. Tests start the same cluster with package localcluster.
//
//	go run ./localcluster/cmd/localcluster --controllers --nodes 2
//	go run ./localcluster/cmd/localcluster --kubernetes-version 1.37
//	go run ./localcluster/cmd/localcluster --help
//
// A supervisor (systemd, make, a script) should not start it with "go run" or "go tool": they do not pass on SIGTERM,
// and their children survive when they are killed. On Linux the cluster detects this and ends. On other systems it
// keeps running. Use instead:
//
//	go build -o localcluster ./localcluster/cmd/localcluster && exec ./localcluster
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

func main() {
	fmt.Fprintln(os.Stderr, become(os.Args[1:]))
	os.Exit(1)
}

// become builds the cluster's binary and replaces this process with it, so that signals and the exit status need no
// forwarding. It returns only on an error.
func become(args []string) error {
	if err := endWithGoCommand(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	binary, err := localcluster.Build(ctx, kubernetesVersion(args), os.Stderr)
	stop()
	if err != nil {
		return err
	}
	err = syscall.Exec(binary, append([]string{"localcluster"}, args...), os.Environ())
	return fmt.Errorf("running %s: %w", binary, err)
}

// kubernetesVersion returns the value of --kubernetes-version, or "". The binary reads all flags; this one also selects
// the binary. The arguments of kubectl are not flags of the cluster.
func kubernetesVersion(args []string) string {
	const flag = "--kubernetes-version"
	if slices.Contains(args[:min(1, len(args))], "kubectl") {
		return ""
	}
	version := ""
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			version = value
		} else if arg == flag && i+1 < len(args) {
			version = args[i+1]
		}
	}
	return version
}

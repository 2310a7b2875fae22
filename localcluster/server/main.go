// Command localcluster runs a real Kubernetes control plane on this machine, built from Go source only: etcd and
// kube-apiserver in one process, and optionally kube-controller-manager, kube-scheduler and kwok's simulated nodes in
// one process each.
//
// The binary has several roles. Users start the supervisor (supervisor.go). It owns the folder with the cluster's data,
// and starts the same binary again for each component (child.go). A component always ends with its supervisor, even if
// the supervisor is killed.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"k8s.io/component-base/version"
)

// Exit statuses. 2 is for an invalid command line, as usual, so that scripts can distinguish their own mistakes from a
// failure of the cluster.
const (
	exitFailed = 1
	exitUsage  = 2
)

const usage = `localcluster runs a real Kubernetes API server (and more) on this machine.

Usage:
  localcluster [up] [flags]              start a cluster; Ctrl-C ends it
  localcluster kubectl [--dir D] ARGS    kubectl, for the running cluster, unless
                                         KUBECONFIG names another localcluster
  localcluster version                   versions of what is inside

Try it:
  localcluster --controllers --nodes 2
  localcluster kubectl create deployment hello --image hello --replicas 3
  localcluster kubectl get pods --watch

'localcluster up --help' explains the flags of up.
`

func main() {
	os.Exit(run(os.Args[1:]))
}

// run selects the role. Without a command it is up.
func run(args []string) int {
	command := "up"
	if len(args) > 0 && (args[0] == "" || args[0][0] != '-') {
		command, args = args[0], args[1:]
	}
	switch command {
	case "up":
		closeToOthers()
		return up(args)
	case "kubectl":
		return runKubectl(args)
	case compactCommand:
		return runCompact()
	case componentCommand:
		closeToOthers()
		return runComponent(args)
	case "version":
		fmt.Println(versions())
		return 0
	case "help":
		fmt.Print(usage)
		return 0
	}
	fmt.Fprintf(os.Stderr, "localcluster: unknown command %q\n\n%s", command, usage)
	return exitUsage
}

// closeToOthers makes all files and sockets that this process creates private to its user: keys, logs, and etcd's
// sockets, which have no authentication.
func closeToOthers() { syscall.Umask(0o077) }

// kubernetesVersion returns the version of the Kubernetes source in this binary.
//
// It is not version.Get(), which the server reports: the linker sets that one (see localcluster.Build), and it is
// v0.0.0-master after a plain "go build".
func kubernetesVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/kubernetes" {
				return dep.Version
			}
		}
	}
	return version.Get().GitVersion
}

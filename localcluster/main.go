// Command localcluster runs a real Kubernetes control plane on this machine,
// built from Go source alone: etcd and kube-apiserver in one process and, when
// asked for, kube-controller-manager, kube-scheduler and kwok's simulated nodes
// in one process each.
//
// It is one binary with several roles. The role that users start is the
// supervisor (supervisor.go): it owns the folder with the cluster's data and
// starts this same binary again for each component (child.go). A component
// lives only as long as its supervisor, whatever happens to the supervisor.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"k8s.io/component-base/version"
)

// Exit statuses: 2 for a command line that makes no sense, as is usual, so that
// scripts can tell a mistake of theirs from a failure of the cluster.
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

// run picks the role. No command at all, or flags alone, mean up.
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
	fmt.Fprintf(os.Stderr, "localcluster: no command %q\n\n%s", command, usage)
	return exitUsage
}

// closeToOthers makes every file and socket that this process creates its user's
// alone, whoever creates it: keys, logs, and etcd's sockets, behind which there is
// no authentication.
func closeToOthers() { syscall.Umask(0o077) }

// kubernetesVersion is the version of the source that this binary was built from.
//
// It is not version.Get(), by which the server introduces itself: that one is set
// by the linker (localcluster.Build does so) and says v0.0.0-master after a plain
// "go build".
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

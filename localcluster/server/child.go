package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// componentCommand is the hidden command that runs this binary as a component, in the cluster's folder.
const componentCommand = "component"

// The components by their names in arguments, logs and messages.
const (
	componentAPIServer  = "apiserver"
	componentSecond     = "apiserver-2"
	componentController = "controller-manager"
	componentScheduler  = "scheduler"
	componentNodes      = "nodes"
)

// runComponent runs a component until it fails or its stdin ends.
func runComponent(args []string) int {
	components := map[string]struct {
		program string // the upstream program's name
		run     func(context.Context, settings) error
	}{
		componentAPIServer:  {"kube-apiserver", apiServer},
		componentSecond:     {"kube-apiserver", secondServer},
		componentController: {"kube-controller-manager", controllerManager},
		componentScheduler:  {"kube-scheduler", podScheduler},
		componentNodes:      {"kwok", nodes},
	}
	if len(args) != 1 || components[args[0]].run == nil {
		fmt.Fprintln(os.Stderr, "localcluster: this command is internal: use 'localcluster up'")
		return exitUsage
	}
	s, err := loadSettings(".")
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		return exitFailed
	}
	go endWithSupervisor(s)
	component := components[args[0]]
	// The name of the program becomes the clients' User-Agent, and so the field manager of their writes.
	os.Args[0] = component.program
	if err := component.run(context.Background(), s); err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
	}
	return exitFailed // a component must not end by itself
}

// endWithSupervisor ends the process when its stdin ends: the supervisor has closed it, or is dead. It exits at once,
// without a graceful shutdown: no data is lost (etcd.go), and a dead supervisor could not enforce a time limit.
//
// It removes the folder of a temporary cluster, because the supervisor may be dead. Every component does so, because
// any of them may end last.
//
// This goroutine is not waited for; it ends the process.
func endWithSupervisor(s settings) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	if s.Temporary {
		if dir, err := os.Getwd(); err == nil {
			removeCluster(dir, s.Kubeconfig)
		}
	}
	os.Exit(0)
}

// componentKubeconfig returns the path of a component's kubeconfig, relative to the folder.
func componentKubeconfig(name string) string {
	return filepath.Join("pki", name+".kubeconfig")
}

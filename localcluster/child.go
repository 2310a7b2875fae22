package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// componentCommand is the hidden command with which the supervisor starts this
// binary as one of the components, inside the cluster's folder.
const componentCommand = "component"

// The components, by the name that they have in arguments, logs and messages.
const (
	componentAPIServer  = "apiserver"
	componentController = "controller-manager"
	componentScheduler  = "scheduler"
	componentNodes      = "nodes"
)

// runComponent runs a component until it fails or its stdin ends.
func runComponent(args []string) int {
	components := map[string]struct {
		program string // what it is called elsewhere
		run     func(context.Context, settings) error
	}{
		componentAPIServer:  {"kube-apiserver", apiServer},
		componentController: {"kube-controller-manager", controllerManager},
		componentScheduler:  {"kube-scheduler", podScheduler},
		componentNodes:      {"kwok", nodes},
	}
	if len(args) != 1 || components[args[0]].run == nil {
		fmt.Fprintln(os.Stderr, "localcluster: components are started by 'localcluster up' alone")
		return exitUsage
	}
	s, err := loadSettings(".")
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		return exitFailed
	}
	go endWithSupervisor(s)
	component := components[args[0]]
	// Clients introduce themselves by it, and so it is the manager of the fields that they set.
	os.Args[0] = component.program
	if err := component.run(context.Background(), s); err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
	}
	return exitFailed // a component has no reason to end by itself
}

// endWithSupervisor ends the process when its stdin does: the supervisor wants
// it to, or is dead. It never waits for anything orderly, since nothing is lost
// (etcd.go) and a dead supervisor cannot insist.
//
// Of a temporary cluster it removes the folder, because after the supervisor's
// death nobody else does. Every component does so: any of them may end last.
//
// Nobody waits for this goroutine; it ends the process.
func endWithSupervisor(s settings) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	if s.Temporary {
		if dir, err := os.Getwd(); err == nil {
			removeCluster(dir, s.Kubeconfig)
		}
	}
	os.Exit(0)
}

// componentKubeconfig is where the credentials of a component lie, from within
// the folder.
func componentKubeconfig(name string) string {
	return filepath.Join("pki", name+".kubeconfig")
}

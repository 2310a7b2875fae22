package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

// runKubectl is kubectl for the cluster that --dir or KUBECONFIG names, else for
// the only temporary cluster that runs.
func runKubectl(args []string) int {
	kubeconfig, args, err := chooseKubeconfig(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		return exitUsage
	}
	if kubeconfig != "" {
		if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil {
			fmt.Fprintf(os.Stderr, "localcluster: choosing the kubeconfig %s: %v\n", kubeconfig, err)
			return exitFailed
		}
	}
	// Kubectl reads os.Args itself, to find plugins.
	os.Args = append([]string{"kubectl"}, args...)
	return cli.Run(kubectl.NewDefaultKubectlCommand())
}

// chooseKubeconfig returns the kubeconfig to use, or "" if kubectl shall find it
// by its own rules, and the arguments that are left for kubectl.
func chooseKubeconfig(args []string) (string, []string, error) {
	if len(args) > 0 {
		dir, isDir := strings.CutPrefix(args[0], "--dir=")
		args := args[1:]
		if !isDir && len(args) > 0 && dir == "--dir" {
			dir, args, isDir = args[0], args[1:], true
		}
		if isDir {
			s, err := loadSettings(dir)
			if err != nil {
				return "", nil, fmt.Errorf("--dir %s is not the folder of a cluster: %w", dir, err)
			}
			return s.Kubeconfig, args, nil
		}
	}
	for _, arg := range args {
		if arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=") {
			return "", args, nil
		}
	}
	if os.Getenv("KUBECONFIG") != "" {
		return "", args, nil
	}
	running, _ := temporaryClusters(os.TempDir())
	switch len(running) {
	case 0:
		return "", nil, errors.New("no cluster is running that could be meant: start one with 'localcluster up', give kubectl --dir DIR first, or set KUBECONFIG")
	case 1:
		s, err := loadSettings(running[0])
		return s.Kubeconfig, args, err
	}
	return "", nil, fmt.Errorf("%d clusters are running: choose one with kubectl --dir DIR ...: %s", len(running), strings.Join(running, " "))
}

// versions says what is inside, from the build information of the binary.
func versions() string {
	lines := []string{"kubernetes " + kubernetesVersion()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return lines[0]
	}
	wanted := map[string]string{"go.etcd.io/etcd/server/v3": "etcd", "sigs.k8s.io/kwok": "kwok"}
	for _, dep := range info.Deps {
		if name := wanted[dep.Path]; name != "" {
			lines = append(lines, name+" "+dep.Version)
		}
	}
	lines = append(lines, "built with "+info.GoVersion+" "+filepath.Base(info.Main.Path)+" "+info.Main.Version)
	return strings.Join(lines, "\n")
}

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

// runKubectl runs kubectl for the cluster in the arguments or in KUBECONFIG. Without one it uses the only running
// temporary cluster.
func runKubectl(args []string) int {
	kubeconfig, args, err := chooseKubeconfig(args, os.TempDir())
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		return exitUsage
	}
	if kubeconfig != "" {
		if err := os.Setenv(clientcmd.RecommendedConfigPathEnvVar, kubeconfig); err != nil {
			fmt.Fprintf(os.Stderr, "localcluster: choosing the kubeconfig %s: %v\n", kubeconfig, err)
			return exitFailed
		}
	}
	// Kubectl reads os.Args itself, to find plugins.
	os.Args = append([]string{"kubectl"}, args...)
	return cli.Run(kubectl.NewDefaultKubectlCommand())
}

// chooseKubeconfig returns the kubeconfig to use and the remaining arguments for kubectl. It returns "" if kubectl
// should apply its own rules. The first of these decides: --dir, --kubeconfig, KUBECONFIG, the only running cluster.
func chooseKubeconfig(args []string, tempDir string) (string, []string, error) {
	if dir, rest, ok := cutDir(args); ok {
		if err := mustRun(dir); err != nil {
			return "", nil, err
		}
		return filepath.Join(dir, adminFile), rest, nil
	}
	for _, arg := range args {
		if arg == "--" {
			break // the following arguments are for a program in a Pod, or a file name
		}
		if arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=") {
			return "", args, nil
		}
	}
	if inherited := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); inherited != "" {
		config, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
		if err != nil {
			return "", nil, fmt.Errorf("reading the files in KUBECONFIG: %w", err)
		}
		if config.CurrentContext != contextName {
			return "", nil, fmt.Errorf("KUBECONFIG is %s, which is not a localcluster: set --kubeconfig, or "+
				"unset KUBECONFIG", inherited)
		}
		return "", args, nil
	}
	running, _ := temporaryClusters(tempDir)
	switch len(running) {
	case 0:
		return "", nil, errors.New("no cluster is running: start one with 'localcluster up', use kubectl --dir DIR " +
			"..., or set KUBECONFIG")
	case 1:
		return filepath.Join(running[0], adminFile), args, nil
	}
	return "", nil, fmt.Errorf("%d clusters are running: choose one with kubectl --dir DIR ...: %s", len(running),
		strings.Join(running, " "))
}

// cutDir removes a leading --dir from the arguments.
func cutDir(args []string) (dir string, rest []string, ok bool) {
	if len(args) == 0 {
		return "", args, false
	}
	if dir, ok := strings.CutPrefix(args[0], "--dir="); ok {
		return dir, args[1:], true
	}
	if args[0] == "--dir" && len(args) > 1 {
		return args[1], args[2:], true
	}
	return "", args, false
}

// mustRun returns an error unless the cluster's server responds. It must not try the folder's lock, because that could
// make a concurrent start fail.
func mustRun(dir string) error {
	s, err := loadSettings(dir)
	if err != nil {
		return fmt.Errorf("--dir %s is not the folder of a cluster: %w", dir, err)
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(loopback, strconv.Itoa(s.Port)), time.Second)
	if err != nil {
		return fmt.Errorf("the cluster in %[1]s is not running: start it with 'localcluster --dir %[1]s' (%[2]w)",
			dir, err)
	}
	_ = conn.Close()
	return nil
}

// versions returns the versions of the components, from the binary's build information.
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
	lines = append(lines, "built with "+info.GoVersion+", localcluster "+info.Main.Version)
	return strings.Join(lines, "\n")
}

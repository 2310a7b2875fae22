package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// controllerManager is the component "controller-manager". It blocks.
func controllerManager(ctx context.Context, s settings) error {
	pki := func(name string) string { return filepath.Join("pki", name) }
	return runCommand(ctx, controllermanager.NewControllerManagerCommand(),
		"--kubeconfig="+componentKubeconfig("controller-manager"),
		"--secure-port=0", // no server
		"--leader-elect=false",
		"--root-ca-file="+pki("ca.crt"),
		"--service-account-private-key-file="+pki("service-accounts.key"),
		"--cluster-signing-cert-file="+pki("ca.crt"),
		"--cluster-signing-key-file="+pki("ca.key"),
		"--service-cluster-ip-range="+serviceRange,
		// The server runs on this machine and has no other users, so a low limit would only delay the controllers.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--feature-gates="+s.FeatureGates,
		verbosity(s),
	)
}

// podScheduler is the component "scheduler". It blocks.
func podScheduler(ctx context.Context, s settings) error {
	return runCommand(ctx, scheduler.NewSchedulerCommand(),
		"--kubeconfig="+componentKubeconfig("scheduler"),
		"--secure-port=0", // no server
		"--leader-elect=false",
		"--feature-gates="+s.FeatureGates,
		verbosity(s),
	)
}

func runCommand(ctx context.Context, c *cobra.Command, args ...string) error {
	c.SetArgs(args)
	c.SilenceUsage = true
	if err := c.ExecuteContext(ctx); err != nil {
		return fmt.Errorf("running %s: %w", c.Name(), err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// serviceRange is the address range of Services. It is not routed.
const serviceRange = "10.96.0.0/16"

// apiServer is the component "apiserver": etcd and kube-apiserver in one process. It blocks.
func apiServer(ctx context.Context, s settings) error {
	etcd, err := startEtcd(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// This goroutine is not waited for: it ends with etcd, which runs until the process exits.
	go func() { cancel(fmt.Errorf("etcd failed: %w", <-etcd.Err())) }()

	return serve(ctx, s)
}

// secondServer is the component "apiserver-2": another kube-apiserver with the same etcd. It blocks.
func secondServer(ctx context.Context, s settings) error {
	s.Port = s.SecondPort
	return serve(ctx, s)
}

func serve(ctx context.Context, s settings) error {
	completed, err := apiServerOptions(ctx, s)
	if err != nil {
		return err
	}
	if err := app.Run(ctx, completed); err != nil {
		return fmt.Errorf("running kube-apiserver: %w", err)
	}
	return context.Cause(ctx)
}

// apiServerOptions parses the flags as kube-apiserver's command does, and sets the listener on the reserved port.
func apiServerOptions(ctx context.Context, s settings) (apiserveroptions.CompletedOptions, error) {
	var none apiserveroptions.CompletedOptions
	server, flags := newOptions()
	if err := flags.Parse(apiServerFlags(s)); err != nil {
		return none, fmt.Errorf("reading kube-apiserver's flags: %w", err)
	}
	globals := server.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := globals.Set(); err != nil {
		return none, fmt.Errorf("setting feature gates: %w", err)
	}
	if err := logsapi.ValidateAndApply(server.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return none, fmt.Errorf("setting up the log: %w", err)
	}
	globals.AddMetrics()
	utilfeature.DefaultMutableFeatureGate.AddMetrics() // /metrics then lists the enabled gates
	rest.SetDefaultWarningHandler(rest.NoWarnings{})   // hides warnings about the server's requests to itself

	listener, err := listenReserved(ctx, s.Port)
	if err != nil {
		return none, err
	}
	server.SecureServing.Listener = listener
	completed, err := server.Complete(ctx)
	if err != nil {
		return none, fmt.Errorf("completing kube-apiserver's options: %w", err)
	}
	if err := utilerrors.NewAggregate(completed.Validate()); err != nil {
		return none, fmt.Errorf("checking kube-apiserver's options: %w", err)
	}
	return completed, nil
}

// newOptions returns the defaults of kube-apiserver's options and the flags that change them.
func newOptions() (*apiserveroptions.ServerRunOptions, *pflag.FlagSet) {
	server := apiserveroptions.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range server.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	return server, flags
}

// checkAPIServerArg returns an error for a flag that kube-apiserver does not accept, and for one that is not the
// user's.
func checkAPIServerArg(arg string) error {
	switch flagName(arg) {
	case "", "help":
		return errors.New("must be a flag such as --audit-log-path=/tmp/audit.log")
	case "bind-address", "advertise-address", "secure-port":
		return errors.New("the cluster listens on " + loopback + " only; --port sets its port")
	case "etcd-servers":
		return errors.New("the cluster always has its own etcd")
	case "service-cluster-ip-range":
		return errors.New("the controllers and the certificate depend on the cluster's own range")
	case "client-ca-file", "tls-cert-file", "tls-private-key-file", "service-account-key-file",
		"service-account-signing-key-file":
		return errors.New("the cluster's users and controllers depend on its own certificates and keys")
	}
	_, flags := newOptions()
	return flags.Parse([]string{arg})
}

func apiServerFlags(s settings) []string {
	pki := func(name string) string { return filepath.Join("pki", name) }
	flags := []string{
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", s.Port),
		// The endpoints of the Service "kubernetes" are not reconciled: an Endpoints object must not have a loopback
		// address.
		"--endpoint-reconciler-type=none",
		"--etcd-servers=unix://" + etcdSocket,
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + pki("service-accounts.key"),
		"--service-account-key-file=" + pki("service-accounts.key"),
		"--allow-privileged=true",
		"--profiling=false",
		"--feature-gates=" + s.FeatureGates,
		verbosity(s),
	}
	if !s.Controllers {
		// This plugin requires a service account for every Pod. Without kube-controller-manager none is created.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	// A list would contain the values of both flags.
	flags = slices.DeleteFunc(flags, func(flag string) bool {
		return slices.ContainsFunc(s.APIServerArgs, func(arg string) bool { return flagName(arg) == flagName(flag) })
	})
	return append(flags, s.APIServerArgs...)
}

// flagName returns the name of a flag such as "--name=value", or "" for another text.
func flagName(arg string) string {
	name, isFlag := strings.CutPrefix(arg, "--")
	if name, _, _ = strings.Cut(name, "="); isFlag {
		return name
	}
	return ""
}

func verbosity(s settings) string {
	if s.Verbose {
		return "--v=3"
	}
	return "--v=0"
}

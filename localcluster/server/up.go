package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// DefaultReadyTimeout limits the wait for each of the API server, the controllers and the nodes. A cluster is usually
// ready within 5 s; the default is for busy machines.
const DefaultReadyTimeout = 60 * time.Second

const upUsage = `Start a Kubernetes cluster on this machine and keep it until Ctrl-C.

Usage:
  localcluster [up] [flags]

Without flags there is only an API server: objects are stored, validated, watched
and authorized as in any cluster, but no Pod is scheduled and no Deployment gets
Pods. This is enough for most controller tests.

  --controllers   adds kube-controller-manager and kube-scheduler
  --nodes N       adds N simulated nodes, on which Pods "run" at once: they get
                  an address and the right status, but no process, logs or exec.
                  There are no volumes: claims stay Pending, and so do their Pods

Flags:
%s
Examples:
  localcluster                                   an API server, gone after Ctrl-C
  localcluster --dir ./cluster                   the same, kept between runs
  localcluster --controllers --nodes 3           Deployments, Jobs and Pods work
  localcluster --user alice=developers,testers   a user to try RBAC rules with

SIGINT, SIGTERM and SIGHUP stop the cluster gracefully. A program that starts and
stops it (systemd, make, a script) should start this binary, or the one of
'go build ./localcluster/cmd/localcluster': 'go run' and 'go tool' do not pass SIGTERM on, and
on systems other than Linux they leave the cluster running.
`

// options are the parsed flags.
type options struct {
	Dir          string
	Port         int
	Controllers  bool
	Nodes        int
	SecondServer bool
	FeatureGates string
	// KubernetesVersion is the version that this binary must have, or "".
	KubernetesVersion string
	// APIServerArgs are flags of kube-apiserver, such as "--name=value".
	APIServerArgs []string
	Users         []user
	Kubeconfig    string
	ReadyTimeout  time.Duration
	Verbose       bool
	Control       bool
}

// user has the name and groups of a client certificate.
type user struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
}

// parseOptions parses the flags of up. It prints the help and returns pflag.ErrHelp if the flags ask for it.
func parseOptions(args []string) (options, error) {
	var opts options
	var users []string
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringVar(&opts.Dir, "dir", "", "`folder` for the cluster's data, kept between runs (default: a temporary "+
		"folder, removed at the end); writes are not synced to disk (no fsync): the data survives killed processes, "+
		"but not a crash of the machine")
	flags.IntVar(&opts.Port, "port", 0, "`port` of the API server on 127.0.0.1; 0 means the previous port of --dir, "+
		"or any free port")
	flags.BoolVar(&opts.Controllers, "controllers", false, "run kube-controller-manager and kube-scheduler")
	flags.IntVar(&opts.Nodes, "nodes", 0, "`number` of simulated nodes, named node-0 and so on, without volumes: "+
		"claims stay Pending; a number above 0 implies --controllers, because Pods need the scheduler")
	flags.BoolVar(&opts.SecondServer, "second-server", false, "run a second API server with the same etcd, on any "+
		"free port; clients see what they see in a cluster with several control planes: each server has a "+
		"cache of its own")
	flags.StringVar(&opts.FeatureGates, "feature-gates", "", "`gates` for all components, such as "+
		"ShardedListAndWatch=true,OtherGate=false")
	flags.StringVar(&opts.KubernetesVersion, "kubernetes-version", "", "Kubernetes `version`, such as 1.37; the command "+
		"builds the binary for it (default: "+kubernetesVersion()+")")
	flags.StringArrayVar(&opts.APIServerArgs, "apiserver-arg", nil, "a `flag` of kube-apiserver, such as "+
		"--audit-log-path=/tmp/audit.log (repeatable); it replaces the one that the cluster sets itself, but addresses, "+
		"etcd, certificates and keys cannot be replaced; paths of files must be absolute")
	flags.StringArrayVar(&users, "user", nil, "a user, `name=group1,group2`, with its own certificate and kubeconfig "+
		"(repeatable); your RBAC rules define its permissions")
	flags.StringVar(&opts.Kubeconfig, "kubeconfig", "", "`file` for a copy of the administrator's kubeconfig "+
		"(admin.kubeconfig in the folder)")
	flags.DurationVar(&opts.ReadyTimeout, "ready-timeout", DefaultReadyTimeout,
		"maximum time to wait for the cluster to become ready")
	flags.BoolVarP(&opts.Verbose, "verbose", "v", false, "more detailed logs of the components (in logs/ of "+
		"the folder)")
	flags.BoolVar(&opts.Control, "control", false, "for programs: commands on stdin, events on stdout, as JSON "+
		"lines; the cluster ends when stdin does")
	flags.Usage = func() { fmt.Printf(upUsage, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q: up takes flags only", flags.Arg(0))
	}
	for _, text := range users {
		u, err := parseUser(text)
		if err != nil {
			return options{}, err
		}
		opts.Users = append(opts.Users, u)
	}
	opts.Controllers = opts.Controllers || opts.Nodes > 0
	return opts, opts.validate()
}

func (o options) validate() error {
	var errs []error
	if o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("--port is %d: must be 1 to 65535, or 0 for a free port", o.Port))
	}
	if o.Nodes < 0 {
		errs = append(errs, fmt.Errorf("--nodes is %d: must be 0 or more", o.Nodes))
	}
	if o.ReadyTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--ready-timeout is %v: must be a positive duration such as 60s",
			o.ReadyTimeout))
	}
	if !hasVersion(kubernetesVersion(), o.KubernetesVersion) {
		errs = append(errs, fmt.Errorf("--kubernetes-version is %s, but this binary has Kubernetes %s: "+
			"localcluster/cmd/localcluster builds one for each version", o.KubernetesVersion, kubernetesVersion()))
	}
	for _, arg := range o.APIServerArgs {
		if err := checkAPIServerArg(arg); err != nil {
			errs = append(errs, fmt.Errorf("--apiserver-arg is %q: %w", arg, err))
		}
	}
	for gate := range strings.SplitSeq(o.FeatureGates, ",") {
		_, value, ok := strings.Cut(gate, "=")
		if gate != "" && (!ok || (value != "true" && value != "false")) {
			errs = append(errs, fmt.Errorf("--feature-gates contains %q: must be Name=true or Name=false", gate))
		}
	}
	return errors.Join(errs...)
}

// hasVersion reports whether version, such as v1.36.3, has the minor or patch version asked, such as 1.36.
func hasVersion(version, asked string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), strings.TrimPrefix(asked, "v"))
	return asked == "" || ok && (rest == "" || rest[0] == '.')
}

func parseUser(text string) (user, error) {
	name, groups, _ := strings.Cut(text, "=")
	if name == "" {
		return user{}, fmt.Errorf("--user is %q: must be name=group1,group2 or a name", text)
	}
	u := user{Name: name}
	for group := range strings.SplitSeq(groups, ",") {
		if group != "" {
			u.Groups = append(u.Groups, group)
		}
	}
	return u, nil
}

// up runs the supervisor, for a person or, with --control, for a program.
func up(args []string) int {
	opts, err := parseOptions(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\nSee 'localcluster up --help'.\n", err)
		return exitUsage
	}
	// A closed stdout or stderr must not end this process before it has stopped its children and removed the folder.
	signal.Ignore(syscall.SIGPIPE)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it on purpose
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()

	if opts.Control {
		return control(ctx, opts)
	}
	err = supervise(ctx, opts, person{}, nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		return exitFailed
	}
	return 0
}

// person is the reporter for a person at a terminal.
type person struct{}

func (person) note(text string) { fmt.Fprintf(os.Stderr, "localcluster: %s\n", text) }

func (person) ready(s status) {
	self, err := os.Executable()
	if err != nil {
		self = "localcluster"
	}
	fmt.Printf("\nUse it from another terminal:\n  export KUBECONFIG=%s\n  kubectl get namespaces\n", s.Kubeconfig)
	fmt.Printf("or, without an installed kubectl:\n  %s kubectl --dir %s get namespaces\n", self, s.Dir)
	for _, u := range s.Users {
		fmt.Printf("User %s: --kubeconfig %s\n", u.Name, u.Kubeconfig)
	}
	if s.Temporary {
		fmt.Printf("\nCtrl-C stops the cluster and removes its data.\n")
	} else {
		fmt.Printf("\nCtrl-C stops the cluster; %s keeps its data.\n", s.Dir)
	}
}

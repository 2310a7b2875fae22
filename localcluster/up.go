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

// DefaultReadyTimeout bounds the wait for each of the API server, the
// controllers and the nodes. A cluster is usually ready within 5 s; the rest is
// for machines that are busy with something else.
const DefaultReadyTimeout = 60 * time.Second

const upUsage = `Start a Kubernetes cluster on this machine and keep it until Ctrl-C.

Usage:
  localcluster [up] [flags]

Without flags there is an API server and nothing else: objects are stored,
validated, watched and authorised as in any cluster, but no Pod is scheduled and
no Deployment gets Pods. That is what most controller tests want.

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

SIGINT, SIGTERM and SIGHUP end the cluster in good order. Where another program
starts and ends it (systemd, make, a script), let that be this binary, or the one
of 'go build ./cmd/localcluster': 'go run' and 'go tool' stand in between, pass
no SIGTERM on, and on other systems than Linux leave the cluster behind.
`

// options is what the command line asks for.
type options struct {
	Dir          string
	Port         int
	Controllers  bool
	Nodes        int
	FeatureGates string
	Users        []user
	Kubeconfig   string
	ReadyTimeout time.Duration
	Verbose      bool
	Control      bool
}

// user is a name and groups, as a client certificate carries them.
type user struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
}

// parseOptions reads the flags of up. It returns pflag.ErrHelp after having
// printed the help that was asked for.
func parseOptions(args []string) (options, error) {
	var opts options
	var users []string
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringVar(&opts.Dir, "dir", "", "`folder` for the cluster's data, kept between runs (default: a temporary one, removed at the end); nothing waits for the disk (no fsync), so the data survives the death of processes and not that of the machine")
	flags.IntVar(&opts.Port, "port", 0, "`port` of the API server on 127.0.0.1; 0 means the port that --dir had before, else any free one")
	flags.BoolVar(&opts.Controllers, "controllers", false, "run kube-controller-manager and kube-scheduler")
	flags.IntVar(&opts.Nodes, "nodes", 0, "`number` of simulated nodes, node-0 and so on; no volumes: claims stay Pending; more than 0 implies --controllers, as Pods need the scheduler to get to a node")
	flags.StringVar(&opts.FeatureGates, "feature-gates", "", "`gates` for all components, such as ShardedListAndWatch=true,OtherGate=false")
	flags.StringArrayVar(&users, "user", nil, "a user, `name=group1,group2`, with a certificate and kubeconfig of its own (repeatable); what it may do is up to your RBAC rules")
	flags.StringVar(&opts.Kubeconfig, "kubeconfig", "", "`file` for a copy of the administrator's kubeconfig (admin.kubeconfig in the folder)")
	flags.DurationVar(&opts.ReadyTimeout, "ready-timeout", DefaultReadyTimeout, "how long to wait for the cluster to become ready")
	flags.BoolVarP(&opts.Verbose, "verbose", "v", false, "more detailed logs of the components (in logs/ of the folder)")
	flags.BoolVar(&opts.Control, "control", false, "for programs: commands on stdin, events on stdout, as JSON lines; the cluster ends when stdin does")
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
		errs = append(errs, fmt.Errorf("--port is %d: give 1 to 65535, or 0 for a free one", o.Port))
	}
	if o.Nodes < 0 {
		errs = append(errs, fmt.Errorf("--nodes is %d: give 0 or more", o.Nodes))
	}
	if o.ReadyTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--ready-timeout is %v: give a duration such as 60s", o.ReadyTimeout))
	}
	for gate := range strings.SplitSeq(o.FeatureGates, ",") {
		_, value, ok := strings.Cut(gate, "=")
		if gate != "" && (!ok || (value != "true" && value != "false")) {
			errs = append(errs, fmt.Errorf("--feature-gates has %q: write Name=true or Name=false", gate))
		}
	}
	return errors.Join(errs...)
}

func parseUser(text string) (user, error) {
	name, groups, _ := strings.Cut(text, "=")
	if name == "" {
		return user{}, fmt.Errorf("--user is %q: write name=group1,group2 or just a name", text)
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
	// A reader of our output that has gone away must not end us before we have
	// ended our children and removed the folder.
	signal.Ignore(syscall.SIGPIPE)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it, and means it
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

// person is the reporter for somebody at a terminal.
type person struct{}

func (person) note(text string) { fmt.Fprintf(os.Stderr, "localcluster: %s\n", text) }

func (person) ready(s status) {
	self, err := os.Executable()
	if err != nil {
		self = "localcluster"
	}
	fmt.Printf("\nUse it from another terminal:\n  export KUBECONFIG=%s\n  kubectl get namespaces\n", s.Kubeconfig)
	fmt.Printf("or, where there is no kubectl:\n  %s kubectl --dir %s get namespaces\n", self, s.Dir)
	for _, u := range s.Users {
		fmt.Printf("User %s: --kubeconfig %s\n", u.Name, u.Kubeconfig)
	}
	if s.Temporary {
		fmt.Printf("\nCtrl-C ends the cluster and removes all of it.\n")
	} else {
		fmt.Printf("\nCtrl-C ends the cluster; %s keeps its data.\n", s.Dir)
	}
}

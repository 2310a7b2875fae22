// Command demo shows pod-terminator on its own cluster or on a given one: the operator ends Pods of a Deployment, and
// the Deployment replaces them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the program at once, without the cleanup.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	once       bool
	rounds     int64
	kubeconfig string
	timeout    time.Duration
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.once, "once", false, "end after some rounds, and check the result")
	flags.Int64Var(&o.rounds, "rounds", 5, "number of rounds of --once")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig `file` of a cluster to use; default: a new "+
		"local cluster")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "time limit of each step")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	s := newPrinter(out)
	s.text("Even Keel's demo: an operator ends Pods, a Deployment heals them.")
	result, err := runOn(ctx, o, s, out)
	switch {
	case err != nil:
		return err
	case result == nil:
		s.text("demo: interrupted before the first round")
	default:
		s.text("%s", result)
	}
	return nil // the last line is printed already
}

// runOn runs the demo on a cluster, and cleans up. The result is nil if it was interrupted before the first round.
func runOn(ctx context.Context, o options, s *printer, out io.Writer) (result *figures, err error) {
	cluster, err := localcluster.Start(ctx, localcluster.Config{
		Controllers: true, Nodes: 2, Kubeconfig: o.kubeconfig,
		Progress: out,
	})
	if err != nil {
		return nil, o.ignoreInterrupt(ctx, err)
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	d, err := newDemo(o, cluster, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.cleanUp(ctx)) }()
	if err := d.setUp(ctx); err != nil {
		return nil, o.ignoreInterrupt(ctx, err)
	}
	now, err := d.runRounds(ctx)
	if err != nil {
		return nil, o.ignoreInterrupt(ctx, err)
	}
	return &now, nil
}

// ignoreInterrupt returns nil for an error that Ctrl-C has caused, if that is the way to end the demo. Earlier failures
// remain errors.
func (o options) ignoreInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil && !o.once && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

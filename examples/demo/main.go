// Command demo shows pod-terminator at work: on a cluster of its own, or on one that it is
// given, Pods of a Deployment are ended by the operator and healed by the Deployment.
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

	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the program at once, for whoever does not want to wait for the
	// clean-up.
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
	flags.BoolVar(&o.once, "once", false, "end after some rounds, and check what has happened")
	flags.Int64Var(&o.rounds, "rounds", 5, "after how many rounds --once ends")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig `file` of a cluster to use; default: one that is started for the demo")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "how long each step may take")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	s := newStory(out)
	s.text("Even Keel's demo: an operator ends Pods, a Deployment heals them.")
	result, err := perform(ctx, o, s, out)
	switch {
	case err != nil:
		return err
	case result == nil:
		s.text("demo: interrupted before the first round")
	default:
		s.text("%s", result)
	}
	return nil // and that was the last line, whatever the clean-up has told
}

// perform gives the demo on a cluster, and leaves nothing behind there. The result is nil
// when it was interrupted before there was any.
func perform(ctx context.Context, o options, s *story, out io.Writer) (result *figures, err error) {
	cluster, err := localcluster.Start(ctx, localcluster.Config{Controllers: true, Nodes: 2, Kubeconfig: o.kubeconfig, Progress: out})
	if err != nil {
		return nil, o.forgive(ctx, err)
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	d, err := newDemo(o, cluster, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.cleanUp(ctx)) }()
	if err := d.setUp(ctx); err != nil {
		return nil, o.forgive(ctx, err)
	}
	now, err := d.play(ctx)
	if err != nil {
		return nil, o.forgive(ctx, err)
	}
	return &now, nil
}

// forgive makes nil of an error that Ctrl-C has caused, where that is the way to end. What
// had failed before stays an error.
func (o options) forgive(ctx context.Context, err error) error {
	if ctx.Err() != nil && !o.once && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Command operator runs the operator of examples/webapp and its twin on controller-runtime, one after the other,
// against a real API server, makes the same changes for both, and compares their resource usage.
//
//	go run ./operator                        1,000 and 5,000 WebApps, one round
//	go run ./operator -n 1000 -rounds 3      medians of three rounds
//	go run ./operator -profile /tmp/p        with CPU profiles of each phase
//
// It prints a table, and one line per figure for programs, Even Keel's figure divided by controller-runtime's:
//
//	RATIO <figure> evenkeel/controller-runtime <value> <number of WebApps>
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/machine"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
)

// Options says how much is measured.
type Options struct {
	// Repository is the root of the repository.
	Repository string `json:"-"`
	// Sizes are the numbers of WebApps.
	Sizes  []int `json:"sizes"`
	Rounds int   `json:"rounds"`
	// Rate is the number of changes a second.
	Rate float64 `json:"rate"`
	// Churn and Rest are how long these phases last. Outage is how long specs change before the API server is killed,
	// and again after it is back.
	Churn  time.Duration `json:"churn"`
	Rest   time.Duration `json:"rest"`
	Outage time.Duration `json:"outage"`
	// Timeout bounds each wait. A phase that exceeds it is reported with the missing results.
	Timeout time.Duration `json:"timeout"`
	// Only is the name of the one program to run; empty: both.
	Only string `json:"only,omitempty"`
	// Binaries is a folder with built programs, named after the programs; empty: they are built.
	Binaries string `json:"-"`
	// Profile is the folder for profiles; empty: none are made.
	Profile string `json:"-"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "operator benchmark:", err)
		os.Exit(1)
	}
}

const usage = `Compare the operator of examples/webapp with the same operator on controller-runtime: a real API server,
the same changes for both, and requests, CPU time, memory and latencies of each phase (start, rest, churn, outage,
restart, deletion).

Usage: go run ./operator [flags]      (in the folder bench; make bench-operator does it)

`

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o Options
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.Usage = func() {
		fmt.Fprint(progress, usage)
		flags.PrintDefaults()
	}
	sizes := flags.String("n", "1000,5000", "numbers of WebApps, separated by commas")
	flags.IntVar(&o.Rounds, "rounds", 1, "how often everything is measured; medians count")
	flags.Float64Var(&o.Rate, "rate", 20, "changes of specs a second, in the phases churn and outage")
	flags.DurationVar(&o.Churn, "churn", time.Minute, "how long specs change in the phase churn")
	flags.DurationVar(&o.Rest, "rest", 30*time.Second, "how long the phase rest lasts")
	flags.DurationVar(&o.Outage, "outage", 5*time.Second, "how long specs change before the API server is killed, "+
		"and after it is back")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "how long each wait may take")
	flags.StringVar(&o.Only, "only", "", "run only this program: evenkeel or controller-runtime")
	flags.StringVar(&o.Profile, "profile", "", "the `folder` for CPU and allocation profiles of each phase (default: "+
		"none); profiles cost CPU time")
	flags.StringVar(&o.Binaries, "binaries", "", "a `folder` with the programs evenkeel and controller-runtime, to "+
		"measure them in place of new builds (default: build them)")
	flags.StringVar(&o.Repository, "repository", "../..", "the `folder` of the repository")
	docs := flags.String("docs", "", "the document to write the tables into, between markers (default: none)")
	write := flags.String("out", "", "the file to write the results to (default: none)")
	from := flags.String("from", "", "take the results from this file in place of a run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from != "" {
		results, err := result.Read[Results](*from)
		if err != nil {
			return err
		}
		return publish(results, out, *docs, "")
	}
	if err := o.complete(*sizes); err != nil {
		return err
	}
	results, err := measure(ctx, o, progress)
	if err != nil {
		if results != nil && len(results.Rounds) > 0 && *write != "" {
			err = errors.Join(err, result.Write(*write, results)) // what was measured before the error
		}
		return err
	}
	return publish(results, out, *docs, *write)
}

// complete checks the options and makes folders absolute.
func (o *Options) complete(sizes string) error {
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("flag -n: %q is not a number of WebApps", text)
		}
		o.Sizes = append(o.Sizes, n)
	}
	if o.Rounds < 1 || o.Rate <= 0 {
		return errors.New("flags -rounds and -rate must be positive")
	}
	known := o.Only == ""
	for _, p := range programs() {
		known = known || o.Only == p.name
	}
	if !known {
		return fmt.Errorf("flag -only: there is no program %q", o.Only)
	}
	for _, path := range []*string{&o.Repository, &o.Binaries, &o.Profile} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	if o.Profile != "" {
		return os.MkdirAll(o.Profile, 0o755)
	}
	return nil
}

// measure builds the programs and runs them by turns.
func measure(ctx context.Context, o Options, progress io.Writer) (_ *Results, err error) {
	begin := time.Now()
	results := &Results{
		Date: begin.UTC().Truncate(time.Minute), Options: o, Machine: machine.This(),
		Versions: make(map[string]string),
	}
	dir, err := os.MkdirTemp("", "bench-operator-binaries-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binaries := make(map[string]string)
	var measured []program
	for _, p := range programs() {
		if o.Only != "" && p.name != o.Only {
			continue
		}
		binary := filepath.Join(o.Binaries, p.name)
		if o.Binaries == "" {
			fmt.Fprintf(progress, "building the operator on %s (minutes the first time)\n", p.title)
			if binary, err = p.build(ctx, o.Repository, dir, o.Profile != ""); err != nil {
				return nil, err
			}
		}
		if err := results.setVersion(p, binary, machine.Commit(ctx, o.Repository)); err != nil {
			return nil, err
		}
		binaries[p.name] = binary
		measured = append(measured, p)
	}
	for _, size := range o.Sizes {
		for round := range o.Rounds {
			for i := range measured {
				p := measured[(i+round)%len(measured)] // by turns, so that none is always the first
				fmt.Fprintf(progress, "%s, %d WebApps: round %d of %d\n", p.name, size, round+1, o.Rounds)
				s := &session{
					o: o, program: p, binary: binaries[p.name], profileDir: o.Profile, progress: progress,
					size: size,
				}
				phases, err := s.measure(ctx)
				results.add(size, p.name, phases)
				if err != nil {
					return results, err
				}
			}
		}
	}
	results.Seconds = time.Since(begin).Seconds()
	return results, nil
}

// publish prints the results, and writes the document and the file where they are wanted.
func publish(r *Results, out io.Writer, docs, file string) error {
	if file != "" {
		if err := result.Write(file, r); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, document(r))
	fmt.Fprint(out, r.ratioLines())
	if docs == "" {
		return nil
	}
	return writeDocs(r, docs)
}

// Command mutants changes the code of packages in small ways and reports which changes no test notices. See mutants
// --help.
//
// It was compared with gremlins 0.6.0 (with all of its mutators) on 27 November 2026. Of 74 mutants that had led to a
// new test by then, gremlins can make 30: it drops no statements, and changes no results, no constants and no
// conditions without an operator (it alone changes bitwise operators). In status, finalizer, retry, leader and
// internal/workqueue it finds 1,014 mutants, this tool 2,455. It runs the tests of the mutated package only, or those
// of the whole module for each mutant, and has no samples, no reasons for survivors and no runs that are continued.
// Both need 4 to 8 s of processor time for a mutant. On a busy machine 28 of the 29 mutants of retry timed out in
// gremlins, which leaves them out of its score.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `mutants changes the code of packages in small ways (a mutant is one change) and runs the tests that reach
the changed line. A mutant that a test fails for is killed. A mutant that survives shows a missing test, or a change
that breaks no promise: a person reads it and writes the test or the reason.

  make mutants PACKAGES=./status,./owned N=50         try 50 mutants of two packages
  make mutants PACKAGES=./status RUN=status-1a2b3c4d  try this mutant again and show the tests' output
  make mutants RETRY=1                                keep the results of mutants that were killed or have a reason
                                                      in the earlier run, and try the others

GOMAXPROCS is the number of mutants that are tried at a time.

The operators:
  negate      inverts a condition, == or !=            remove    drops a call, an assignment, ++, a send, go
  boundary    swaps < and <=, > and >=                 return    returns zero values, or a nil error
  logic       swaps && and ||                          constant  takes a number's neighbour or a type's next constant
  arithmetic  swaps + and -, * and /                   jump      drops continue, break, or return without results
  boolean     inverts true, false, or a boolean that is assigned

No mutants: in tests, generated files, log lines, and the methods String, GoString and LogValue; dropped defers,
locks, unlocks and WaitGroup.Done, which only crash or hang; capacities.

The sample: each package gets a share by its number of mutants, which is divided evenly over its operators. The
same seed draws the same mutants, and edits elsewhere do not change a mutant's ID. The few mutants that do
not compile count as killed.

The tests: each test of the mutated package is run once without a mutant to see which lines it reaches and how long it
takes. A mutant is tried with the tests that reach its line: first with those that take less than a second, then with
the others, then with those of at most three other packages, and at last with all tests of the packages that -last
names (they may start a cluster; a test that failed runs twice). A hang (three times the normal duration and 15 s)
kills a mutant, too.

A verdict is the reason why a mutant may survive. It is a block in the file of verdicts, which begins as the report
shows the mutant:

  status-1a2b3c4d boundary in (*patch).size, status/patch.go
  - if n > limit {
  + if n >= limit {
  reason: ...

The flags:
`

func main() {
	switch err := start(os.Args[1:]); {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errInterrupted):
		os.Exit(130) // the report has been printed
	default:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	c := config{dir: ".", slack: 15 * time.Second}
	var packages, run string
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&packages, "package", "", "package `patterns` with commas: ./status,./controller/... (required)")
	flags.IntVar(&c.n, "n", 400, "how many mutants to try")
	flags.Uint64Var(&c.seed, "seed", 1, "seed of the sample")
	flags.StringVar(&run, "run", "", "try only the mutants with these `IDs` (with commas) and show the tests' output")
	flags.StringVar(&c.last, "last", "", "`pairs` with commas, ./package=./tests: run all of these tests on a mutant "+
		"that the other tests let pass")
	flags.StringVar(&c.state, "state", "", "`file` that keeps the results for -retry")
	flags.BoolVar(&c.retry, "retry", false, "keep the results of mutants that were killed or have a reason in the "+
		"run in -state, and try the others")
	flags.StringVar(&c.out, "out", "", "write the document to this `file`")
	flags.StringVar(&c.verdicts, "verdicts", "", "`file` with the verdicts")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.patterns = split(packages)
	c.run = split(run)
	switch {
	case len(flags.Args()) > 0:
		return fmt.Errorf("unexpected argument %q; packages are named with -package", flags.Arg(0))
	case len(c.patterns) == 0:
		return errors.New("-package is missing, for example -package ./status; --help explains the tool")
	case c.n < 1:
		return errors.New("-n must be above zero")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-signals
		signal.Stop(signals) // a second signal ends the process at once
		cancel(errInterrupted)
	}()
	return runTool(ctx, c, os.Stdout)
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

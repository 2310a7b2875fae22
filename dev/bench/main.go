// Command bench runs the same controller on Even Keel, controller-runtime (also with parts of Even Keel) and Kooper
// side by side against a simulated API server, and compares their resource usage.
//
//	go run . -n 20000 -rounds 3     a short run
//	go run . -docs ../../docs/reference   the full run, written to docs/reference/benchmarks.md
//	go run . -from results.json -docs ../../docs/reference   the document again, without a run
//
// It prints a table, and one line per figure for programs:
//
//	RATIO <metric> evenkeel/<peer> <value>
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
)

// Options says how much is measured.
type Options struct {
	// Sizes are the numbers of objects. Events and reads are measured at the first.
	Sizes []int `json:"sizes"`
	// ChartSizes are measured too, for the charts; above the largest of Sizes with Even Keel
	// alone, once.
	ChartSizes []int `json:"chartSizes,omitempty"`
	Rounds     int   `json:"rounds"`
	// Workers is how many handlers each controller may run at the same time.
	Workers int `json:"workers"`
	// Distinct is how many events the burst over distinct keys has at most.
	Distinct int `json:"distinct"`
	// HotKeys, HotRate and HotSeconds describe the burst over few keys, with a handler that waits HotHandlerMicros.
	HotKeys          int     `json:"hotKeys"`
	HotRate          int     `json:"hotRate"`
	HotSeconds       float64 `json:"hotSeconds"`
	HotHandlerMicros int     `json:"hotHandlerMicros"`
	// PacedRate and PacedSeconds describe the events for the latency measurement.
	PacedRate    int     `json:"pacedRate"`
	PacedSeconds float64 `json:"pacedSeconds"`
	// ReadMillis is for how long each kind of read is repeated.
	ReadMillis int `json:"readMillis"`
	// Cold is true when the cold build is measured.
	Cold bool `json:"cold"`
	// TLS is true when the server speaks HTTPS, and so HTTP/2.
	TLS bool `json:"tls"`
	// Timeout is how long one step of one program may take.
	Timeout time.Duration `json:"timeout"`
	// Only limits the controllers to those named; empty: all.
	Only []string `json:"only,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == serveCommand {
		return serve(ctx, args[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var o Options
	sizes := flags.String("n", "", "numbers of objects, separated by commas; events are measured at the first "+
		"(default: the full run, 10000,100000)")
	chartSizes := flags.String("charts", "", "further numbers of objects for the charts (default of the full run: "+
		"1000,1000000)")
	only := flags.String("only", "", "names of the controllers to run, separated by commas (default: all)")
	flags.IntVar(&o.Rounds, "rounds", 3, "how often everything is measured; medians count")
	flags.BoolVar(&o.Cold, "cold", false, "measure the cold build too (on in the full run)")
	flags.BoolVar(&o.TLS, "tls", false, "serve HTTPS and HTTP/2 in place of plain HTTP")
	flags.Float64Var(&o.PacedSeconds, "paced", 0, "seconds of paced events (default 10 in the full run, else 2)")
	flags.DurationVar(&o.Timeout, "timeout", 4*time.Minute, "how long one step of one program may take")
	dir := flags.String("dir", ".", "the folder bench of the repository")
	docs := flags.String("docs", "", "the folder to write benchmarks.md and its charts to (default: none)")
	from := flags.String("from", "", "take the results from this file in place of a run")
	out := flags.String("out", "", "the file to write the results to (default: results.json with -docs, else none)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from != "" {
		results, err := result.Read[Results](*from)
		if err != nil {
			return err
		}
		return publish(results, *dir, *docs, "")
	}
	full := *sizes == ""
	if full {
		*sizes = "10000,100000"
		o.Cold = true
		if *chartSizes == "" {
			*chartSizes = "1000,1000000"
		}
	}
	var err error
	if o.Sizes, err = numbers(*sizes); err == nil {
		o.ChartSizes, err = numbers(*chartSizes)
	}
	if err != nil {
		return err
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	o.setDefaults(full)
	results, err := compare(ctx, *dir, o)
	if err != nil {
		if results != nil && len(results.Figures) > 0 {
			fmt.Fprint(os.Stdout, "This run is not complete.\n", table(results))
		}
		return err
	}
	if *out == "" && *docs != "" {
		*out = *dir + "/results.json"
	}
	return publish(results, *dir, *docs, *out)
}

func (o *Options) setDefaults(full bool) {
	o.Workers = 4
	o.Distinct = 10000
	o.HotKeys, o.HotRate, o.HotSeconds, o.HotHandlerMicros = 100, 10000, 1, 1000
	o.PacedRate, o.ReadMillis = 1000, 250
	if full {
		o.Distinct, o.HotSeconds, o.ReadMillis = 20000, 3, 1000
	}
	if o.PacedSeconds == 0 {
		o.PacedSeconds = 2
		if full {
			o.PacedSeconds = 10
		}
	}
}

func numbers(list string) ([]int, error) {
	var result []int
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of objects", text)
		}
		result = append(result, n)
	}
	return result, nil
}

// publish prints the results, and writes the document and the file where they are wanted.
func publish(results *Results, dir, docs, out string) error {
	if out != "" {
		if err := result.Write(out, results); err != nil {
			return err
		}
	}
	fmt.Fprint(os.Stdout, table(results))
	fmt.Fprint(os.Stdout, ratioLines(results))
	if docs == "" {
		return nil
	}
	return writeDocs(results, dir, docs)
}
